//! The end of a server: after the exports have closed, every array is closed cleanly.

use std::rc::Rc;

use api::Problem;
use futures::future::join_all;

use super::Data;

/// Closes every array. All are tried, also when one fails.
///
/// # Errors
/// The arrays whose last checkpoint could not be written; nothing is lost, the next start recovers them.
pub async fn close_arrays(data: &Rc<Data>) -> Result<(), Problem> {
    let served = std::mem::take(&mut *data.served.borrow_mut());
    join_all(served.keys().map(|name| data.end_notebook(name))).await;
    let mut problems = vec![];
    for (name, opened) in served {
        let begun = data.world.rt.now();
        match opened.close(&data.world).await {
            Ok(()) => tracing::info!("array {name}: closed in {} ms", (data.world.rt.now() - begun).as_millis()),
            Err(problem) => {
                tracing::error!("{}", problem.line());
                problems.push(problem);
            }
        }
    }
    Problem::all(problems).map_or(Ok(()), Err)
}
