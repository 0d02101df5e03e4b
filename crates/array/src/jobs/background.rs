//! Starts what is done in the background for the log, the volumes and the members. What is long in all goes behind
//! others when it has had as long as they.

use std::rc::Rc;

use super::Jobs;

impl Jobs {
    /// Starts the background tasks.
    pub fn start_background(&self) {
        let rt = &self.ctx.rt;
        rt.spawn(self.generations.clone().keep_generations()).detach();
        rt.spawn_background(self.checkpoints.clone().keep_checkpoints()).detach();
        rt.spawn(self.room.clone().keep_zones()).detach();
        rt.spawn(self.health.clone().keep_flushed()).detach();
        rt.spawn_background(self.cleaner.clone().keep_clean()).detach();
        rt.spawn_background(self.rebuild.clone().keep_rebuilt()).detach();
        rt.spawn_background(self.scrubs.clone().keep_scrubbed()).detach();
        self.health.start_health();
        // Whoever writes asks the marks first: they are there as long as anybody does.
        let (generations, marks) = (self.generations.clone(), self.marks.clone());
        rt.spawn(async move {
            generations.keep_current().await;
            drop::<Rc<_>>(marks);
        })
        .detach();
    }
}
