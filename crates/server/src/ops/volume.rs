//! `volume`: create, grow, rename, limit, delete, list.

use api::{Done, LimitsView, Problem, VERSION, VolumeLimit, VolumeState, VolumeView, Volumes};
use array::parts;
use array::{Limits, Whole};

use super::open::named;
use crate::problem;
use crate::size::human;

/// Sees to it that there is a volume of this name and size; whether it was made now.
///
/// # Errors
/// When there is another one of this name, or the name or the size is refused.
pub async fn state(array: &Whole, name: &str, bytes: u64) -> Result<(Done, bool), Problem> {
    let volumes = list(array).await?.volumes;
    let Some(there) = volumes.into_iter().find(|v| v.state == VolumeState::Live && *v.name == *name) else {
        return Ok((create(array, name, bytes).await?, true));
    };
    let name = format!("{}/{name}", array.first().name());
    if there.bytes == rounded_up(array, bytes) {
        return Ok((Done::new(format!("Volume {name} was there already: {}", human(there.bytes))), false));
    }
    let why = format!("it is there, and has {}, not {}", human(there.bytes), human(bytes));
    Err(Problem::refused("differs", format!("volume {name}"), why, "choose another name, or grow it"))
}

/// Makes a volume.
///
/// # Errors
/// When the name or the size is refused.
pub async fn create(array: &Whole, name: &str, bytes: u64) -> Result<Done, Problem> {
    array.volume_create(name, bytes).await.map_err(|r| named(array, r))?;
    let status = array.status().await.map_err(|f| problem::fault("the array", f))?;
    let made = status.volumes.iter().find(|v| *v.name == *name).map_or(bytes, |v| v.bytes);
    let mut done = Done::new(format!("Created volume {}/{name}: {}, thin", status.name, human(made)));
    done.notes.extend(rounded(array, bytes, made));
    if status.provisioned_bytes > status.usable_bytes {
        done.notes.push(format!(
            "the volumes promise {}, the array holds {} ({:.1} times as much): writes fail once it is full",
            human(status.provisioned_bytes),
            human(status.usable_bytes),
            status.provisioned_bytes as f64 / status.usable_bytes.max(1) as f64
        ));
    }
    Ok(done)
}

/// What sizes of volumes are multiples of.
fn unit(array: &Whole) -> u64 {
    match array.others().len() as u64 + 1 {
        1 => base::BLOCK_BYTES as u64,
        parts => parts * parts::STRIPE_BYTES,
    }
}

/// The size of a volume for which so many bytes are asked.
fn rounded_up(array: &Whole, bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(unit(array)).unwrap_or(bytes)
}

/// What to say when a volume has got more than was asked for.
fn rounded(array: &Whole, asked: u64, got: u64) -> Option<String> {
    let unit = unit(array);
    (got > asked).then(|| format!("{asked} bytes were rounded up to {got}: volumes are multiples of {}", human(unit)))
}

/// Makes a volume larger.
///
/// # Errors
/// When there is none, or it would shrink.
pub async fn grow(array: &Whole, name: &str, bytes: u64) -> Result<Done, Problem> {
    array.volume_grow(name, bytes).await.map_err(|r| named(array, r))?;
    let now = list(array).await?.volumes.iter().find(|v| *v.name == *name).map_or(bytes, |v| v.bytes);
    let mut done = Done::new(format!("Volume {}/{name} now has {}", array.first().name(), human(now)));
    done.notes.extend(rounded(array, bytes, now));
    done.notes.push("NVMe/TCP hosts see the new size at once, NBD clients after they reconnect; a file system is enlarged by its own command (`resize2fs`, `xfs_growfs`)".to_owned());
    Ok(done)
}

/// Gives a volume another name.
///
/// # Errors
/// When there is none, or the new name is taken.
pub async fn rename(array: &Whole, name: &str, to: &str) -> Result<Done, Problem> {
    array.volume_rename(name, to).await.map_err(|r| named(array, r))?;
    Ok(Done::new(format!("Renamed volume {0}/{name} to {0}/{to}", array.first().name())))
}

/// Limits what its hosts may take.
///
/// # Errors
/// When there is none.
pub async fn limit(array: &Whole, name: &str, request: VolumeLimit) -> Result<Done, Problem> {
    let now = array.first().volumes().into_iter().find(|v| *v.name == *name).map(|v| v.limits).unwrap_or_default();
    let limits = Limits {
        iops: request.iops.unwrap_or(now.iops),
        bytes_per_second: request.bytes_per_second.unwrap_or(now.bytes_per_second),
        burst_ms: request.burst_ms.unwrap_or(now.burst_ms),
    };
    array.volume_limit(name, limits).await.map_err(|r| named(array, r))?;
    let Limits { iops, bytes_per_second, burst_ms } = limits;
    let sentence = limits_sentence(LimitsView { iops, bytes_per_second, burst_ms });
    let mut done = Done::new(format!("Volume {}/{name}: {sentence}", array.first().name()));
    done.notes.extend(about_low(limits));
    Ok(done)
}

/// What to say of limits at which hosts give up waiting.
fn about_low(limits: Limits) -> Option<String> {
    let bandwidth = (1..1 << 20).contains(&limits.bytes_per_second);
    let iops = (1..10).contains(&limits.iops);
    (bandwidth || iops).then(|| {
        "this limit is very low: requests of hosts may wait for minutes, and time out (0 removes a limit)".to_owned()
    })
}

/// Limits, for people.
#[must_use]
pub fn limits_sentence(l: LimitsView) -> String {
    let mut parts = Vec::new();
    if l.iops > 0 {
        parts.push(format!("{} requests/s", l.iops));
    }
    if l.bytes_per_second > 0 {
        parts.push(format!("{}/s", human(l.bytes_per_second)));
    }
    if parts.is_empty() {
        return "no limits".to_owned();
    }
    if l.burst_ms > 0 {
        parts.push(format!("a burst of {} s", f64::from(l.burst_ms) / 1000.0));
    }
    parts.join(", ")
}

/// Deletes a volume and all it holds.
///
/// # Errors
/// When there is none.
pub async fn delete(array: &Whole, name: &str) -> Result<Done, Problem> {
    array.volume_delete(name).await.map_err(|r| named(array, r))?;
    let mut done = Done::new(format!("Deleted volume {}/{name}", array.first().name()));
    done.notes.push("its space is freed in the background".to_owned());
    Ok(done)
}

/// The volumes.
///
/// # Errors
/// When the core of a part has ended.
pub async fn list(array: &Whole) -> Result<Volumes, Problem> {
    let status = array.status().await.map_err(|f| problem::fault("the array", f))?;
    let mut volumes: Vec<VolumeView> = status.volumes;
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Volumes { version: VERSION, array: status.name, volumes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_at_which_hosts_give_up_are_noted() {
        let limits = |iops, bytes_per_second| Limits { iops, bytes_per_second, ..Limits::default() };
        for (limits, is_low) in [
            (limits(0, 0), false),
            (limits(10, 0), false),
            (limits(0, 1 << 20), false),
            (limits(1, 0), true),
            (limits(0, 1), true),
        ] {
            assert_eq!(about_low(limits).is_some(), is_low, "{limits:?}");
        }
    }
}
