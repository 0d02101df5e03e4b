//! Money: from a price file of the user's, with a date, and a result. No price is built in.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::findings::{About, Unit, count_of, short};
use crate::model::{Cell, Run, State, Verdict};
use crate::units::latency;

/// The price file. Prices are in its currency, on its date.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// When the prices held.
    pub date: String,
    /// In which currency.
    pub currency: String,
    /// Of everything that was measured.
    pub system_price: f64,
    /// Bytes of all drives, in TB.
    pub raw_tb: f64,
    /// Drives.
    pub drives: u32,
    /// Their RAID level, as 5 or as "RAID5"; absent: bare drives.
    pub raid: Option<Level>,
    /// The system that was measured, as its name begins; absent: the one that the result is about.
    pub system: Option<String>,
    /// Latency, 99 %, that a rate must keep to.
    #[serde(default = "one_ms")]
    pub p99_ms_max: f64,
    /// Hundredths kept free.
    #[serde(default)]
    pub reserve_percent: f64,
    /// Deduplication, 2 for 2:1.
    #[serde(default = "one")]
    pub dedup: f64,
    /// Compression, 2 for 2:1.
    #[serde(default = "one")]
    pub compression: f64,
    /// Watts of everything.
    pub watts: Option<f64>,
    /// Price of a kWh.
    pub kwh_price: Option<f64>,
    /// Power of the building over that of the machines.
    #[serde(default = "one")]
    pub pue: f64,
    /// Years that costs are told for.
    #[serde(default = "five")]
    pub years: f64,
    /// Drive writes a day that the warranty covers.
    pub dwpd: Option<f64>,
    /// Years of the warranty.
    pub warranty_years: Option<f64>,
    /// TB that hosts write a day.
    pub host_tb_per_day: Option<f64>,
    /// Bytes to drives for each byte of hosts.
    pub write_amplification: Option<f64>,
    /// Transports.
    #[serde(default)]
    pub port: Vec<Port>,
}

/// A RAID level, as a number or a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Level {
    /// 5.
    Number(u32),
    /// "RAID5".
    Word(String),
}

impl Level {
    /// Its number; nothing for bare drives.
    ///
    /// # Errors
    /// What is no level.
    pub fn number(&self) -> Result<Option<u32>, String> {
        let number = match self {
            Level::Number(n) => Some(*n),
            Level::Word(word) => {
                let word = word.trim().to_ascii_uppercase();
                let digits = word.strip_prefix("RAID").unwrap_or(&word).trim_start_matches(['-', ' ']);
                if word == "JBOD" || word == "NONE" { None } else { Some(digits.parse().unwrap_or(u32::MAX)) }
            }
        };
        match number {
            None | Some(0 | 1 | 5 | 6 | 10) => Ok(number),
            Some(_) => Err(format!("raid = {self:?} is unknown; valid: 0, 1, 5, 6, 10, \"RAID5\", \"JBOD\"")),
        }
    }
}

/// What a port of one transport costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// "32G FC".
    pub name: String,
    /// Of a host adapter.
    pub adapter_price: f64,
    /// Its ports.
    pub adapter_ports: f64,
    /// Of a switch.
    pub switch_price: f64,
    /// Its ports.
    pub switch_ports: f64,
    /// Of one transceiver; a link has two.
    #[serde(default)]
    pub optic_price: f64,
    /// Of a cable.
    #[serde(default)]
    pub cable_price: f64,
    /// Line rate.
    pub gbit_per_sec: f64,
}

fn one() -> f64 {
    1.0
}

fn one_ms() -> f64 {
    1.0
}

fn five() -> f64 {
    5.0
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
    /// How it was computed.
    pub how: String,
}

/// The table, of what its rates are, and what cannot be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Priced {
    /// What can be told.
    pub lines: Vec<Line>,
    /// The system and its build.
    pub of: String,
    /// What cannot, and why.
    pub absent: Vec<String>,
}

impl Prices {
    /// Reads a price file.
    ///
    /// # Errors
    /// When it cannot be read or makes no sense.
    pub fn read(path: &Path) -> Result<Prices, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
        let prices: Prices = toml::from_str(&text).map_err(|e| Error::format(path.display().to_string(), e))?;
        let sizes = [prices.system_price, prices.raw_tb, f64::from(prices.drives)];
        let positive = sizes.into_iter().chain([prices.dedup, prices.compression, prices.p99_ms_max]);
        if let Some(Err(why)) = prices.raid.as_ref().map(Level::number) {
            return Err(Error::format(path.display().to_string(), why));
        }
        if positive.into_iter().any(|v| !(v.is_finite() && v > 0.0)) || !(0.0..100.0).contains(&prices.reserve_percent)
        {
            return Err(Error::format(
                path.display().to_string(),
                "prices, sizes and ratios must be above zero, the reserve below 100",
            ));
        }
        Ok(prices)
    }

    /// Share of raw bytes that RAID leaves.
    pub fn raid_efficiency(&self) -> f64 {
        let n = f64::from(self.drives);
        match self.level() {
            Some(1 | 10) => 0.5,
            Some(5) => (n - 1.0) / n,
            Some(6) => (n - 2.0) / n,
            Some(_) | None => 1.0,
        }
    }

    /// The number of the level; nothing for bare drives.
    fn level(&self) -> Option<u32> {
        self.raid.as_ref().and_then(|level| level.number().ok().flatten())
    }

    /// TB for data.
    pub fn usable_tb(&self) -> f64 {
        self.raw_tb * self.raid_efficiency() * (1.0 - self.reserve_percent / 100.0)
    }

    /// Whether a cell is of what the prices are for; what a cell does not tell may be.
    fn fits(&self, cell: &Cell, system: Option<&str>) -> bool {
        let subject = &cell.subject;
        let level = match (self.level(), subject.level.as_deref()) {
            (_, None) | (None, Some("JBOD")) => true,
            (Some(n), Some(text)) => text.eq_ignore_ascii_case(&format!("RAID{n}")),
            (None, Some(_)) => false,
        };
        let is_named = match (&self.system, system) {
            (Some(name), _) => subject.system.starts_with(name.as_str()),
            (None, system) => system.is_none_or(|s| s == subject.system),
        };
        level
            && is_named
            && subject.drive_count.is_none_or(|n| n == self.drives)
            && subject.state == State::Optimal
            && cell.may_stand()
            && cell.verdict() != Verdict::Fail
            && cell.load.cached != Some(true)
    }

    /// The best rate that keeps to the bound; one whose latency nobody told counts when no other is there, and says so.
    fn best(&self, cells: &[&Cell], unit: Unit) -> Option<(f64, String)> {
        let of_unit = || cells.iter().filter(|c| Unit::of(c) == Some(unit));
        let p99 = |c: &Cell| c.figures.latency.p99_us;
        let kept = of_unit().filter(|c| p99(c).is_some_and(|us| us <= self.p99_ms_max * 1e3));
        let most = |a: &&&Cell, b: &&&Cell| unit.value(a).unwrap_or(0.0).total_cmp(&unit.value(b).unwrap_or(0.0));
        let cell = kept.max_by(most).or_else(|| of_unit().filter(|c| p99(c).is_none()).max_by(most))?;
        let tail = match p99(cell) {
            Some(us) => format!("p99 {}, at most {} ms", latency(us), self.p99_ms_max),
            None => format!("p99 unknown, so not held to {} ms", self.p99_ms_max),
        };
        let value = unit.value(cell)?;
        let how =
            format!("{}, {}, threads x depth {}, {tail}", unit.text(value), cell.load.name(), cell.load.pressure());
        Some((value, how))
    }

    /// Everything that can be told of a result: its rates are of the one system that the prices are for.
    pub fn lines(&self, run: &Run) -> Priced {
        let about = About::of(run);
        let cells: Vec<&Cell> = run.cells.iter().filter(|c| self.fits(c, about.system)).collect();
        let (iops, bytes_per_sec) = (self.best(&cells, Unit::Iops), self.best(&cells, Unit::Bytes));
        let level = self.level().map_or("bare drives".to_owned(), |n| format!("RAID{n}"));
        let system = self.system.as_deref().or(about.system).map_or("the target".to_owned(), short);
        let of = format!("{system}, {}, {level}", count_of(self.drives, "drive"));
        let mut absent = vec![];
        for (what, rate) in [("requests", &iops), ("bandwidth", &bytes_per_sec)] {
            if rate.is_none() {
                let why = format!("{what}: no cell of {of} with a p99 of {} ms or less, or unknown", self.p99_ms_max);
                absent.push(why);
            }
        }
        Priced { lines: self.table(iops, bytes_per_sec), of, absent }
    }

    /// The lines, with rates and their conditions.
    fn table(&self, iops: Option<(f64, String)>, bytes_per_sec: Option<(f64, String)>) -> Vec<Line> {
        let per = |unit: &str| format!("{}/{unit}", self.currency);
        let line = |what: &str, value: f64, unit: String, how: String| Line { what: what.to_owned(), value, unit, how };
        let effective = self.usable_tb() * self.dedup * self.compression;
        let mut lines = vec![
            line("raw", self.system_price / self.raw_tb, per("TB"), format!("{:.2} TB", self.raw_tb)),
            line(
                "usable",
                self.system_price / self.usable_tb(),
                per("TB"),
                format!("{:.2} TB after RAID and reserve", self.usable_tb()),
            ),
            line(
                "effective",
                self.system_price / effective,
                per("TB"),
                format!("{:.2} : 1 assumed", self.dedup * self.compression),
            ),
        ];
        let watt = iops.as_ref().zip(self.watts.filter(|w| *w > 0.0));
        let watt =
            watt.map(|((n, of), watts)| line("requests for each watt", n / watts, "IOPS/W".to_owned(), of.clone()));
        lines.extend(iops.map(|(n, of)| line("requests", self.system_price / (n / 1e3), per("KIOPS"), of)));
        lines.extend(watt);
        lines.extend(bytes_per_sec.map(|(n, of)| line("bandwidth", self.system_price / (n / 1e9), per("(GB/s)"), of)));
        lines.extend(self.life_years().map(|y| {
            line("life", y, "years".to_owned(), "drive writes that the warranty covers / writes to drives".to_owned())
        }));
        if let (Some(watts), Some(kwh)) = (self.watts, self.kwh_price) {
            let energy = watts / 1e3 * 8760.0 * self.years * kwh * self.pue;
            let how = format!("price and {:.0} {} of energy", energy, self.currency);
            lines.push(line(
                &format!("{:.0} years", self.years),
                self.system_price + energy,
                self.currency.clone(),
                how,
            ));
        }
        for port in &self.port {
            let price = port.price();
            lines.push(line(&port.name, price, per("port"), "adapter, switch, two transceivers, cable".to_owned()));
            lines.push(line(
                &port.name,
                price / port.gbit_per_sec,
                per("Gbit/s"),
                format!("line rate {} Gbit/s", port.gbit_per_sec),
            ));
        }
        lines
    }

    /// Years until the writes that the warranty covers are used up; data reduction makes it longer.
    pub fn life_years(&self) -> Option<f64> {
        let covered_tb = self.dwpd? * self.raw_tb * self.warranty_years? * 365.0;
        let drive_tb_per_day = self.host_tb_per_day? * self.write_amplification? / (self.dedup * self.compression);
        Some(covered_tb / drive_tb_per_day / 365.0)
    }
}

impl Port {
    /// Adapter, switch, transceivers and cable of one link.
    pub fn price(&self) -> f64 {
        self.adapter_price / self.adapter_ports
            + self.switch_price / self.switch_ports
            + 2.0 * self.optic_price
            + self.cable_price
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        date = "2026-11-01"
        currency = "EUR"
        system_price = 80000.0
        raw_tb = 80.0
        drives = 8
        raid = 5
        reserve_percent = 0.0
        dedup = 2.0
        watts = 1000.0
        kwh_price = 0.25
        years = 1.0
        dwpd = 1.0
        warranty_years = 5.0
        host_tb_per_day = 80.0
        write_amplification = 2.0
        [[port]]
        name = "25G Ethernet"
        adapter_price = 400.0
        adapter_ports = 2.0
        switch_price = 9600.0
        switch_ports = 48.0
        optic_price = 50.0
        gbit_per_sec = 25.0
    "#;

    #[test]
    fn the_formulas_hold() {
        let prices: Prices = toml::from_str(FILE).unwrap();
        let lines = prices.table(Some((1e6, "4K random read".to_owned())), None);
        let value = |unit: &str| lines.iter().find(|l| l.unit == unit).unwrap().value;
        assert_eq!(lines[0].value, 1000.0);
        assert!((lines[1].value - 80_000.0 / 70.0).abs() < 1e-9);
        assert!((lines[2].value - 80_000.0 / 140.0).abs() < 1e-9);
        assert_eq!((value("EUR/KIOPS"), value("EUR/port"), value("EUR/Gbit/s")), (80.0, 500.0, 20.0));
        assert_eq!(value("IOPS/W"), 1000.0);
        assert_eq!((value("EUR"), prices.life_years()), (82_190.0, Some(5.0)));
    }

    #[test]
    fn rates_are_of_the_system_that_is_priced_and_within_the_bound() {
        let run = crate::published::run("perc12").unwrap();
        let prices: Prices = toml::from_str(FILE).unwrap();
        let price_of = |run: &Run, unit: &str| {
            let priced = prices.lines(run);
            let line = priced.lines.iter().find(|l| l.unit == unit).cloned();
            (line, priced)
        };
        // Eight drives in RAID 5 behind one card: 6,974,826 reads a second, not the 13.2 million of sixteen.
        let (line, priced) = price_of(&run, "EUR/KIOPS");
        assert!((line.unwrap().value - 80_000.0 / 6974.826).abs() < 1e-6);
        assert!(priced.of.contains("8 drives, RAID5"), "{}", priced.of);
        let (line, _) = price_of(&run, "EUR/(GB/s)");
        assert!((line.unwrap().value - 80_000.0 / 24.049).abs() < 1e-6, "no JBOD of sixteen");
        // With latencies told, only what keeps to the bound counts.
        let mut told = run.clone();
        told.cells.iter_mut().for_each(|c| c.figures.latency.p99_us = Some(5000.0));
        let (line, priced) = price_of(&told, "EUR/KIOPS");
        assert!(line.is_none() && priced.absent.len() == 2, "{:?}", priced.absent);
        let slow = told.cells.iter_mut().find(|c| c.id == "perc12-046").unwrap();
        slow.figures.latency.p99_us = Some(900.0);
        let (line, _) = price_of(&told, "EUR/KIOPS");
        assert!((line.unwrap().value - 80_000.0 / 862.769).abs() < 1e-6);
    }

    #[test]
    fn levels_are_numbers_or_words() {
        let level = |text: &str| {
            let file = FILE.replace("raid = 5", &format!("raid = {text}"));
            toml::from_str::<Prices>(&file).unwrap().raid.unwrap().number()
        };
        assert_eq!((level("5"), level("\"RAID5\""), level("\"raid-6\"")), (Ok(Some(5)), Ok(Some(5)), Ok(Some(6))));
        assert_eq!(level("\"JBOD\""), Ok(None));
        assert!(level("7").is_err() && level("\"fast\"").is_err());
    }
}
