//! `volume`: create, grow, rename, limit, delete, list.

use array::whole;
use array::{Limits, Whole};

use super::open::named;
use crate::Problem;
use crate::size::human;
use crate::view::{Done, LimitsView, VERSION, VolumeLimit, VolumeView, Volumes};

/// Makes a volume.
///
/// # Errors
/// When the name or the size is refused.
pub async fn create(array: &Whole, name: &str, bytes: u64) -> Result<Done, Problem> {
    array.volume_create(name, bytes).await.map_err(|r| named(array, r))?;
    let status = array.status().await.map_err(|f| Problem::fault("the array", f))?;
    let made = status.volumes.iter().find(|v| v.name == name).map_or(bytes, |v| v.bytes);
    let mut done = Done::new(format!("volume {}/{name} is there, {}", status.name, human(made)));
    done.notes.extend(rounded(array, bytes, made));
    if status.provisioned_bytes > status.usable_bytes {
        done.notes.push(format!(
            "the volumes promise {}, the array holds {}: writes fail once it is full",
            human(status.provisioned_bytes),
            human(status.usable_bytes)
        ));
    }
    Ok(done)
}

/// What to say when a volume has got more than was asked for.
fn rounded(array: &Whole, asked: u64, got: u64) -> Option<String> {
    let unit = match array.others().len() as u64 + 1 {
        1 => base::BLOCK_BYTES as u64,
        parts => parts * whole::STRIPE_BYTES,
    };
    (got > asked).then(|| format!("{asked} bytes were rounded up to {got}: volumes are multiples of {}", human(unit)))
}

/// Makes a volume larger.
///
/// # Errors
/// When there is none, or it would shrink.
pub async fn grow(array: &Whole, name: &str, bytes: u64) -> Result<Done, Problem> {
    array.volume_grow(name, bytes).await.map_err(|r| named(array, r))?;
    let now = list(array).await?.volumes.iter().find(|v| v.name == name).map_or(bytes, |v| v.bytes);
    let mut done = Done::new(format!("volume {}/{name} has {} now", array.first().name(), human(now)));
    done.notes.extend(rounded(array, bytes, now));
    done.notes.push("hosts see the new size when they connect again".to_owned());
    Ok(done)
}

/// Gives a volume another name.
///
/// # Errors
/// When there is none, or the new name is taken.
pub async fn rename(array: &Whole, name: &str, to: &str) -> Result<Done, Problem> {
    array.volume_rename(name, to).await.map_err(|r| named(array, r))?;
    Ok(Done::new(format!("volume {0}/{name} is {0}/{to} now", array.first().name())))
}

/// Limits what its hosts may take.
///
/// # Errors
/// When there is none.
pub async fn limit(array: &Whole, name: &str, request: VolumeLimit) -> Result<Done, Problem> {
    let now = array.first().volumes().into_iter().find(|v| v.name == name).map(|v| v.limits).unwrap_or_default();
    let limits = Limits {
        iops: request.iops.unwrap_or(now.iops),
        bytes_per_second: request.bytes_per_second.unwrap_or(now.bytes_per_second),
        burst_ms: request.burst_ms.unwrap_or(now.burst_ms),
    };
    array.volume_limit(name, limits).await.map_err(|r| named(array, r))?;
    let Limits { iops, bytes_per_second, burst_ms } = limits;
    let sentence = limits_sentence(LimitsView { iops, bytes_per_second, burst_ms });
    Ok(Done::new(format!("volume {}/{name}: {sentence}", array.first().name())))
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
    let mut done = Done::new(format!("volume {}/{name} is gone", array.first().name()));
    done.notes.push("its space comes back in the background".to_owned());
    Ok(done)
}

/// The volumes.
///
/// # Errors
/// When the core of a part has ended.
pub async fn list(array: &Whole) -> Result<Volumes, Problem> {
    let status = array.status().await.map_err(|f| Problem::fault("the array", f))?;
    let mut volumes: Vec<VolumeView> = status.volumes.into_iter().map(VolumeView::from).collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Volumes { version: VERSION, array: status.name, volumes })
}
