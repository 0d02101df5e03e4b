//! What drives can become in parts: the sums of what the parts are. Arithmetic only.

use api::PlanView;
use base::BlockCount;
use ondisk::PartOf;

use super::in_part;
use crate::fault::Refused;
use crate::label::slices::Slices;
use crate::label::slices::{check_parts, too_small};
use crate::space::plan::{CreateSpec, plan as plan_of_one};

/// The plan for drives of these sizes (in blocks) in so many parts. In one piece it is [`plan`](crate::space::plan()).
///
/// # Errors
/// When level, width, sizes and parts do not go together.
pub fn plan(spec: &CreateSpec, drive_blocks: &[u64], parts: u8) -> Result<PlanView, Refused> {
    check_parts(parts)?;
    let slices = |blocks: &u64| Slices::new(BlockCount(*blocks), parts).ok_or_else(|| too_small(*blocks, parts));
    let sliced = drive_blocks.iter().map(slices).collect::<Result<Vec<_>, _>>()?;
    let of_part = |index| {
        let sizes: Vec<u64> = sliced.iter().map(|slices| slices.range(index).1.0).collect();
        plan_of_one(spec, &sizes).map_err(|refused| {
            let parts_are_why = parts > 1 && plan_of_one(spec, drive_blocks).is_ok();
            let todo = if parts_are_why { format!("{}, or fewer parts", refused.todo) } else { refused.todo.clone() };
            in_part(PartOf { index, of: parts }, Refused { todo, ..refused })
        })
    };
    let mut whole = of_part(0)?;
    for index in 1..parts {
        let part = of_part(index)?;
        whole.segments += part.segments;
        whole.raw_bytes += part.raw_bytes;
        whole.data_bytes += part.data_bytes;
        whole.usable_bytes += part.usable_bytes;
        whole.largest_drive_bytes += part.largest_drive_bytes;
    }
    Ok(whole)
}
