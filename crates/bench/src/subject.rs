//! What is compared: direct drives, and arrays of each level made on the same drives.

use api::PlanView;
use array::{Array, CreateSpec};
use ondisk::{Level, Scheme};
use rt::{Drive, Rt};
use serde::{Serialize, Serializer};

use crate::condition::{Condition, State};
use crate::error::{Error, Impossible};
use crate::stripe::Stripe;
use crate::target::Target;
use crate::team::{Asks, Team};

/// The array's and the volume's name.
const NAME: &str = "bench";

/// One thing that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The drives with nothing between.
    Direct,
    /// An array.
    Level {
        /// Its level.
        level: Level,
        /// Columns of a segment; `None`: as `create` chooses.
        width: Option<usize>,
    },
    /// A RAID 10 of pairs that writes each block where the one before it lay: what others have, at its best.
    InPlaceRaid10,
}

/// Drives of [`Subject::InPlaceRaid10`] that hold the same.
const IN_PLACE_COPIES: usize = 2;

impl Subject {
    /// An array of a level, as wide as `drives` drives allow; `None` where they are too few.
    #[must_use]
    pub fn widest(level: Level, drives: usize) -> Option<Subject> {
        let width = level.scheme_of_width(drives)?.width();
        (width > level.tolerates()).then_some(Subject::Level { level, width: Some(width) })
    }

    /// Direct drives, then RAID 0, 10, 5 and 6 as wide as `drives` drives allow.
    #[must_use]
    pub fn all_levels(drives: usize) -> Vec<Subject> {
        let levels = [Level::Raid0, Level::Raid10 { copies: 2 }, Level::Raid5, Level::Raid6];
        let arrays = levels.into_iter().filter_map(|level| Subject::widest(level, drives));
        std::iter::once(Subject::Direct).chain(arrays).collect()
    }

    /// What it becomes on `drives` in so many parts; `None` for direct drives and for what `create` refuses.
    #[must_use]
    pub fn plan(self, drives: &[Drive], zone_blocks: Option<u32>, parts: usize) -> Option<PlanView> {
        let Subject::Level { level, width } = self else { return None };
        let blocks: Vec<u64> = drives.iter().map(|d| d.info().blocks.0).collect();
        array::parts::plan(&spec(level, width, zone_blocks), &blocks, u8::try_from(parts).ok()?).ok()
    }

    /// The redundancy of what it writes over `drives`, in parts or not; `None` for direct drives and for what `create` refuses.
    #[must_use]
    pub fn scheme(self, drives: &[Drive], zone_blocks: Option<u32>) -> Option<Scheme> {
        match self {
            Subject::Direct => None,
            Subject::Level { level, .. } => level.scheme_of_width(self.plan(drives, zone_blocks, 1)?.width),
            Subject::InPlaceRaid10 => {
                let level = Level::Raid10 { copies: IN_PLACE_COPIES as u8 };
                level.scheme_of_width(drives.len() / IN_PLACE_COPIES * IN_PLACE_COPIES)
            }
        }
    }

    /// Whether it can be brought into the state of `condition`; direct drives stay as they are beside it.
    #[must_use]
    pub fn allows(self, condition: Condition) -> bool {
        match self {
            Subject::Level { level, .. } => condition.state == State::Optimal || level.tolerates() > 0,
            Subject::InPlaceRaid10 => condition.state == State::Optimal,
            Subject::Direct => true,
        }
    }

    /// Makes it on `drives`, whatever they hold; arrays get one volume of `volume_bytes`.
    ///
    /// # Errors
    /// When the level does not go with the drives, or a drive fails.
    pub async fn make(
        self,
        rt: &Rt,
        drives: &[Drive],
        zone_blocks: Option<u32>,
        volume_bytes: u64,
    ) -> Result<Target, Error> {
        let (level, width) = match self {
            Subject::Level { level, width } => (level, width),
            Subject::Direct => return Ok(Target::Direct(Stripe::new(drives.to_vec())?)),
            Subject::InPlaceRaid10 => {
                return Ok(Target::Direct(Stripe::mirrored(drives.to_vec(), IN_PLACE_COPIES)?));
            }
        };
        let array = Array::create(rt, drives.to_vec(), &spec(level, width, zone_blocks)).await?;
        array.volume_create(NAME, volume_bytes).await?;
        let volume = array.volume(NAME).expect("it was made just now");
        Ok(Target::Volume { array, volume })
    }

    /// The same on `cores` cores, arrays in as many parts. Memory drives are to hold nothing.
    ///
    /// # Errors
    /// As [`Subject::make`], when it is RAID 10 in place, or when there is no further core.
    pub async fn make_on(
        self,
        rt: &Rt,
        drives: &[Drive],
        zone_blocks: Option<u32>,
        volume_bytes: u64,
        cores: usize,
        asks: Asks,
    ) -> Result<Target, Error> {
        let team = match self {
            Subject::Direct => Team::direct(rt, drives, cores).await?,
            Subject::Level { level, width } => {
                Team::array(rt, drives, &spec(level, width, zone_blocks), cores, volume_bytes, asks).await?
            }
            Subject::InPlaceRaid10 => return Err(Impossible::CoresInPlace.into()),
        };
        Ok(Target::Team(team))
    }
}

fn spec(level: Level, width: Option<usize>, zone_blocks: Option<u32>) -> CreateSpec {
    CreateSpec { name: NAME.to_owned(), level, width, zone_blocks, force: true }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Direct => f.write_str("direct drives"),
            Subject::Level { level, .. } => level.fmt(f),
            Subject::InPlaceRaid10 => f.write_str("RAID 10 in place"),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_the_drives_allow() {
        let names = |n| Subject::all_levels(n).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(8), ["direct drives", "RAID 0", "RAID 10", "RAID 5", "RAID 6"]);
        assert_eq!(names(1), ["direct drives", "RAID 0"]);
        let odd = Subject::all_levels(5)[2];
        assert_eq!(odd, Subject::Level { level: Level::Raid10 { copies: 2 }, width: Some(4) });
    }
}
