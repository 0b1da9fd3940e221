//! The project of an inode.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::project::{Project, ProjectGetReq, ProjectSetReq};

use crate::{Client, Ctx};

impl Client {
    /// The project that an inode counts for.
    pub async fn project(&self, ino: Ino) -> Result<Project, Fault> {
        self.mds.ask(&ProjectGetReq { ino }).await
    }

    /// Sets the project, the flag by which a directory gives it to what is made in it, or both.
    pub async fn set_project(
        &self,
        ctx: &Ctx,
        ino: Ino,
        id: Option<u32>,
        inherits: Option<bool>,
    ) -> Result<Project, Fault> {
        // Kept in the table, so that what a notice says meanwhile is not missed.
        let inode = self.inodes.hold(ino);
        // Buffered bytes hold a reservation of the old project.
        self.flush_behind(&inode).await;
        let request = ProjectSetReq { ino, id, inherits, cred: ctx.cred.clone() };
        let project = self.mds.ask(&request).await?;
        if self.limits.is_on() {
            self.limits.forget();
        }
        Ok(project)
    }
}
