//! tmpfile: a file without a name (O_TMPFILE).

use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::open::Access;
use brindle_wire::mds::tmpfile::TmpfileReq;

use crate::file::open::Opened;
use crate::{Client, Ctx};

impl Client {
    /// Makes a nameless file in a directory and opens it; `link` can give it a name.
    pub async fn tmpfile(
        &self,
        ctx: &Ctx,
        parent: Ino,
        mode: u32,
        umask: u32,
        access: Access,
    ) -> Result<Opened, Fault> {
        loop {
            let era = self.session.era();
            let creating = self.inodes.creating();
            let handle = self.handles.number();
            let request = TmpfileReq { parent, mode, umask, access, handle, cred: ctx.cred.clone() };
            let answer = self.mds.ask(&request).await?;
            let (hold, asked) = creating.made(answer.attr.ino);
            let opened = self.opened(hold, asked, handle, access, (answer.attr, answer.grant), None).await;
            match self.still_open(ctx, opened, access, era).await {
                // A restarted MDT has let it go: it has no name, and nobody had said that it is open. No
                // program has seen it either.
                Err(fault) if fault.code == Code::NotFound => {}
                done => return done,
            }
        }
    }
}
