//! A drive that was missing is here again: it takes its seat in every part that misses it.
//!
//! Not here: looking for it (the server does), what it brings along (`open::returning`).

use rt::Drive;

use super::Whole;
use crate::canary::{Canary, planted};
use crate::engine::Array;
use crate::fault::{Fault, Refused, RefusedCode};
use crate::label::read::made_of;
use crate::label::read::read_label_patiently;
use crate::label::slices::Slices;

impl Whole {
    /// Whether a drive is missing somewhere, and nothing has its place.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn lacks_drives(&self) -> Result<bool, Fault> {
        Ok(self.all(|array| async move { array.is_writable() && !array.missing().is_empty() }).await?.contains(&true))
    }

    /// Gives up the handles on drives that are missing, so that they can be opened anew; what these are called.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn let_go_of_missing(&self) -> Result<Vec<String>, Fault> {
        Ok(self.all(|array| async move { array.let_go_of_missing() }).await?.concat())
    }

    /// Lets go of drives that have failed, were replaced or retired; the paths of the drives that some part has open still.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn let_go_of_former(&self) -> Result<Vec<String>, Fault> {
        Ok(self.all(|array| async move { array.let_go_of_former() }).await?.concat())
    }

    /// Ends the reservation of a drive that no part has open any more.
    pub async fn end_reservation(&self, drive: &Drive) {
        self.first.end_reservation(drive).await;
    }

    /// Takes a drive back in every part where its seat misses it; false when none does.
    ///
    /// # Errors
    /// As [`Array::drive_back`], or when it is not a drive of this array.
    pub async fn drive_back(&self, drive: &Drive) -> Result<bool, Refused> {
        let name = format!("drive {}", drive.info().name);
        if let Some(what) = made_of(drive).await.filter(|_| !planted(Canary::ForgottenLabelBelieved)) {
            let todo = "Replace it with another drive, or add it as a new one";
            return Err(Refused::new(
                RefusedCode::Diverged,
                name,
                format!("it holds something else now: {what}"),
                todo,
            ));
        }
        let label = read_label_patiently(self.first.rt(), drive).await.map_err(|e| Refused::io(&name, e))?;
        let ours = label.ok().filter(|l| l.array == self.first.identity());
        let slices = ours.and_then(|label| Slices::of_label(&label, drive.info().blocks));
        let Some(slices) = slices.filter(|s| u64::from(s.of()) == self.count()) else {
            let todo = "Name the right drive";
            return Err(Refused::new(RefusedCode::NotFound, name, "it is not a drive of this array", todo));
        };
        let mut taken = false;
        for part in slices.parts() {
            let back = async |array: Array, slice| array.comes_back(slice).await;
            taken |= self.part(usize::from(part.index)).ask_with(slices.slice(drive, part.index), back).await?;
        }
        Ok(taken)
    }
}
