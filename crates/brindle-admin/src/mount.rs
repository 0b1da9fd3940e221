//! A mount, as jobs on files need it: its daemon answers questions and scans.

use std::sync::Arc;

use brindle_client::control::{Answer, Request, ScanAsk, ScanPage};
use brindle_client::{Client, Ctx};
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Ino, Result};

/// Takes the pages of a scan.
pub type EachPage<'a> = &'a mut (dyn FnMut(ScanPage) -> Result<()> + Send);

/// A mount of a file system, whose daemon answers.
pub trait Mount: Send + Sync {
    /// The root of the mount.
    fn root(&self) -> Result<Ino>;
    /// Asks its daemon.
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Answer>>;
    /// Has the mount's daemon scan.
    fn scan<'a>(&'a self, ask: ScanAsk, each: EachPage<'a>) -> BoxFuture<'a, Result<()>>;
}

/// A client in this process.
pub struct InProcess {
    client: Arc<Client>,
    ctx: Ctx,
}

impl InProcess {
    /// Access with the rights of `ctx`.
    pub fn new(client: Arc<Client>, ctx: Ctx) -> InProcess {
        InProcess { client, ctx }
    }
}

impl Mount for InProcess {
    fn root(&self) -> Result<Ino> {
        Ok(self.client.root())
    }

    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(async { self.client.control(&self.ctx, request.clone()).await })
    }

    fn scan<'a>(&'a self, ask: ScanAsk, each: EachPage<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let mut request = ask.request(self.ctx.cred.clone());
            loop {
                let mut page = self.client.scan_page(&request).await?;
                request.cursor = page.cursor.take();
                let is_last = request.cursor.is_none();
                each(ScanPage::new(page, is_last))?;
                if is_last {
                    return Ok(());
                }
            }
        })
    }
}

/// An answer of another kind than the question asks for.
pub fn unexpected(answer: &Answer) -> Fault {
    Fault::new(Code::Bug).what("the mount's daemon answered another question").why(format!("{answer:?}"))
}
