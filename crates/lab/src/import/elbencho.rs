//! elbencho: its CSV, and JSON with the same names. Of the two columns of each figure the last is taken: when the
//! slowest thread was done.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Found;
use crate::error::Error;
use crate::model::{Access, Figures, Latency, Load};

type Row = BTreeMap<String, String>;

/// Bytes of elbencho's MiB.
const MIB: f64 = 1_048_576.0;

/// The phases in a CSV file.
pub fn csv(text: &str) -> Result<Vec<Found>, Error> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let rows: Result<Vec<Row>, _> = reader.deserialize().collect();
    Ok(rows.map_err(|e| Error::format("CSV", e))?.iter().filter_map(phase).collect())
}

/// The phases in a JSON file: one object, a list of them, or one after the other.
pub fn json(text: &str) -> Result<Vec<Found>, Error> {
    let mut found = vec![];
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|e| Error::format("JSON", e))?;
        let items = if let Value::Array(items) = value { items } else { vec![value] };
        for item in items {
            let Value::Object(map) = item else { continue };
            let row: Row = map.into_iter().map(|(k, v)| (k, v.as_str().map_or(v.to_string(), str::to_owned))).collect();
            found.extend(phase(&row));
        }
    }
    Ok(found)
}

/// A phase that read or wrote; others (directories, caches) have no rate of requests.
fn phase(row: &Row) -> Option<Found> {
    let get = |name: &str| row.get(name).map(|v| v.trim()).filter(|v| !v.is_empty());
    let number = |name: &str| get(name)?.parse::<f64>().ok();
    let flag = |name: &str| number(name).map(|n| n != 0.0);
    let read_percent = match get("operation")? {
        "READ" => Some(100.0),
        "WRITE" => Some(0.0),
        "RWMIX" => None,
        other if other.starts_with("RWMIX") => other.trim_start_matches("RWMIX").trim_end_matches('%').parse().ok(),
        _ => return None,
    };
    let iops = number("IOPS [last]")?;
    // Threads are counted on one host.
    let threads = number("threads").map(|t| t * number("hosts").unwrap_or(1.0).max(1.0));
    let version = get("version").map_or(String::new(), |v| format!("elbencho {v}; "));
    Some(Found {
        name: get("label").unwrap_or_default().to_owned(),
        load: Load {
            access: flag("random").map(|random| if random { Access::Random } else { Access::Sequential }),
            read_percent,
            block_bytes: number("block size").filter(|b| *b > 0.0).map(|b| b as u64),
            threads: threads.map(|t| t as u32),
            // 0 stands for calls that wait, which is one request.
            depth: number("IO depth").map(|d| (d as u32).max(1)),
            cached: flag("direct IO").map(|direct| !direct),
            ..Load::default()
        },
        figures: Figures {
            iops: Some(iops),
            bytes_per_sec: number("MiB/s [last]").map(|m| m * MIB),
            latency: Latency {
                mean_us: number("IO lat us [avg]"),
                max_us: number("IO lat us [max]"),
                ..Latency::default()
            },
            seconds: number("time ms [last]").map(|ms| ms / 1e3),
            cpu_percent: number("CPU% [last]"),
            ..Figures::default()
        },
        command: get("command").map(str::to_owned),
        note: format!("{version}rates of the slowest thread's end"),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "ISO date,label,path type,paths,hosts,threads,dirs,files,file size,block size,direct IO,random,\
        random aligned,IO depth,shared paths,truncate,operation,time ms [first],time ms [last],entries/s [first],\
        entries/s [last],IOPS [first],IOPS [last],MiB/s [first],MiB/s [last],CPU% [first],CPU% [last],entries [first],\
        entries [last],MiB [first],MiB [last],Ent lat us [min],Ent lat us [avg],Ent lat us [max],IO lat us [min],\
        IO lat us [avg],IO lat us [max]";

    #[test]
    fn phases_that_move_data_are_read() {
        let head = HEAD.replace("        ", "");
        let text = format!(
            "{head}\n\
             2026-05-22T10:00:00,t,file,1,2,8,,1,1073741824,4096,1,1,1,4,1,0,READ,900,1000,,,260000,250000,1015,976.5625,9,8,,,950,976,,,,100,256,4000\n\
             2026-05-22T10:00:00,t,dir,1,1,8,1,4,0,0,0,0,,0,1,0,MKDIRS,2,5,3277,1466,,,,,8,7,8,8,,,812,1068,1378,,,\n\
             2026-05-22T10:00:01,t,file,1,1,1,,1,1073741824,1048576,0,0,,0,1,0,WRITE,900,1000,,,1000,900,1000,900,9,8,,,950,976,,,,100,1100,4000\n"
        );
        let found = csv(&text).unwrap();
        assert_eq!(found.len(), 2);
        let (read, write) = (&found[0], &found[1]);
        assert_eq!((read.load.name().as_str(), read.load.pressure().as_str()), ("4K random read", "16 x 4"));
        assert_eq!((read.figures.iops, read.figures.bytes_per_sec), (Some(250_000.0), Some(1.024e9)));
        assert_eq!((read.figures.latency.mean_us, read.load.cached), (Some(256.0), Some(false)));
        assert_eq!((write.load.name().as_str(), write.load.depth), ("1M sequential write", Some(1)));
    }

    #[test]
    fn json_has_the_same_names() {
        let one =
            r#"{"operation":"WRITE","IOPS [last]":"100","block size":"4096","random":"0","threads":2,"IO depth":"1"}"#;
        for text in
            [one.to_owned(), format!("[{one}]"), format!("{one}\n{one}").replacen(one, "{\"operation\":\"SYNC\"}", 1)]
        {
            let found = json(&text).unwrap();
            assert_eq!(
                (found.len(), found[0].figures.iops, found[0].load.threads),
                (1, Some(100.0), Some(2)),
                "{text}"
            );
        }
        assert!(json("{").is_err());
    }
}
