//! create: makes a regular file and opens it. No OST is asked: objects are made by the first write.

use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::create::CreateReq;
use brindle_wire::mds::open::Access;

use crate::file::open::Created;
use crate::{Client, Ctx};

/// The name of a new file and how it is made.
#[derive(Clone, Copy, Debug)]
pub struct CreateIn<'a> {
    /// Directory.
    pub parent: Ino,
    /// Name.
    pub name: &'a [u8],
    /// Permission bits asked for.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Fail if the name exists.
    pub exclusive: bool,
    /// Access with which the file is opened.
    pub access: Access,
}

impl Client {
    /// Makes a file and opens it; without `exclusive` opens the one that is there.
    pub async fn create(&self, ctx: &Ctx, create: CreateIn<'_>) -> Result<Created, Fault> {
        loop {
            match self.create_here(ctx, create).await {
                Err(fault) if fault.code == Code::Released => {
                    let found = self.lookup(create.parent, create.name).await?;
                    self.recall(ctx, found.ino).await?;
                }
                done => return done,
            }
        }
    }

    async fn create_here(&self, ctx: &Ctx, create: CreateIn<'_>) -> Result<Created, Fault> {
        let era = self.session.era();
        let (creating, naming) = (self.inodes.creating(), self.inodes.naming());
        let handle = self.handles.number();
        let request = CreateReq {
            parent: create.parent,
            name: create.name.to_vec(),
            mode: create.mode,
            umask: create.umask,
            exclusive: create.exclusive,
            access: create.access,
            handle,
            cred: ctx.cred.clone(),
        };
        let answer = self.mds.ask(&request).await?;
        let (hold, asked) = creating.made(answer.attr.ino);
        let granted = (answer.attr, answer.grant);
        let opened = self.opened(hold, asked, handle, create.access, granted, None).await;
        let mut opened = self.still_open(ctx, opened, create.access, era).await?;
        if !answer.created && !create.access.truncate {
            match self.attr_by_name(naming, opened.attr).await {
                Ok(attr) => opened.attr = attr,
                Err(fault) => {
                    self.close(opened.handle).await?;
                    return Err(fault);
                }
            }
        }
        Ok(Created { opened, created: answer.created })
    }
}
