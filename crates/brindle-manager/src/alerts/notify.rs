//! Tells alerts and reports to a webhook and by mail: one after the other, tried again a few times, never in the way of anything else.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::post::{self, Webhook};
use super::store::Notice;
use crate::quota_report::QuotaReport;

/// Notices that wait to be sent; further ones are lost, and the log says so.
const WAITING_MAX: usize = 256;
/// How long the program that sends mail may take.
const MAIL_LIMIT: Duration = Duration::from_secs(30);
/// Pauses before further tries.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// Most bytes of the program's output that are shown.
const SAID_MAX_CHARS: usize = 300;

/// Receivers of alerts.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    /// The webhook.
    pub webhook: Option<Webhook>,
    /// Addresses that get mail.
    pub mail_to: Vec<String>,
    /// Sender of the mail.
    pub mail_from: String,
    /// The program that takes a mail on its standard input, as sendmail does with `-t -i`.
    pub sendmail: String,
}

impl Ways {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.webhook.is_none() && self.mail_to.is_empty()
    }
}

/// Message to send.
enum Notification {
    Alert(Box<Notice>),
    Quotas(QuotaReport),
}

impl Notification {
    /// For the webhook.
    fn json(&self) -> String {
        let text = match self {
            Notification::Alert(notice) => serde_json::to_string(notice),
            Notification::Quotas(report) => serde_json::to_string(report),
        };
        text.expect("plain fields always serialise")
    }

    /// Subject and body of a mail.
    fn words(&self) -> (String, String) {
        match self {
            Notification::Alert(notice) => alert_words(notice),
            Notification::Quotas(report) => {
                let subject = format!("[brindle {}] quotas: {} near a limit", report.fs, report.quotas.len());
                (subject, report.text())
            }
        }
    }
}

/// Tells alerts and reports.
pub struct Notifier {
    queue: Option<mpsc::Sender<Notification>>,
    not_sent: Arc<Mutex<Option<String>>>,
}

impl Notifier {
    /// Begins to tell; must be called within a runtime if there is a way.
    pub fn start(ways: Ways) -> Notifier {
        let not_sent = Arc::new(Mutex::new(None));
        if ways.is_empty() {
            return Notifier { queue: None, not_sent };
        }
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(send_all(ways, waiting, not_sent.clone()));
        Notifier { queue: Some(queue), not_sent }
    }

    /// Tells of an alert, soon.
    pub fn tell(&self, notice: Notice) {
        self.send(Notification::Alert(Box::new(notice)));
    }

    /// Sends a report, soon.
    pub fn report(&self, report: QuotaReport) {
        self.send(Notification::Quotas(report));
    }

    fn send(&self, told: Notification) {
        let Some(queue) = &self.queue else { return };
        if let Err(e) = queue.try_send(told) {
            *self.not_sent.lock() = Some(format!("{WAITING_MAX} wait to be sent"));
            tracing::error!(error = %e, "an alert or report is not sent");
        }
    }

    /// Why the last one could not be sent; none if it was.
    pub fn not_sent(&self) -> Option<String> {
        self.not_sent.lock().clone()
    }
}

async fn send_all(
    ways: Ways,
    mut waiting: mpsc::Receiver<Notification>,
    not_sent: Arc<Mutex<Option<String>>>,
) {
    while let Some(told) = waiting.recv().await {
        let mut failed = None;
        let (subject, body) = told.words();
        if let Some(webhook) = &ways.webhook {
            let json = told.json();
            failed = tried(|| post::send(webhook, &json)).await.err();
        }
        if !ways.mail_to.is_empty() {
            let mail = mail(&ways, &subject, &body);
            failed = tried(|| send_mail(&ways.sendmail, &mail)).await.err().or(failed);
        }
        if let Some(why) = &failed {
            tracing::error!(subject, why, "an alert or report is not sent");
        }
        *not_sent.lock() = failed;
    }
}

/// Tries again after a pause, a few times; the last refusal.
async fn tried<F: Future<Output = Result<(), String>>>(mut send: impl FnMut() -> F) -> Result<(), String> {
    for pause in PAUSES {
        if send().await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
    }
    send().await
}

/// Without what would begin another line.
fn line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

/// Subject and body of an alert.
fn alert_words(notice: &Notice) -> (String, String) {
    let alert = &notice.alert;
    let subject = format!("[brindle {}] {}: {} {}", notice.fs, notice.event, alert.code, alert.subject);
    let body = format!(
        "{}\n\nalert {} ({}), {}\nwhat to do: {}\nmore: brindle explain {}\n",
        line(&alert.text),
        alert.id,
        alert.severity.word(),
        notice.event,
        line(&alert.next),
        alert.code,
    );
    (subject, body)
}

/// A mail as RFC 5322 has it. The told text never begins a line of the head. In the body a user's name may begin a line, and means nothing
/// there.
fn mail(ways: &Ways, subject: &str, body: &str) -> String {
    format!(
        "From: {}\nTo: {}\nSubject: {}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\
         Content-Transfer-Encoding: 8bit\nAuto-Submitted: auto-generated\n\n{body}",
        line(&ways.mail_from),
        line(&ways.mail_to.join(", ")),
        line(subject),
    )
}

async fn send_mail(program: &str, mail: &str) -> Result<(), String> {
    let sending = async {
        let mut child = Command::new(program)
            .args(["-t", "-i"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("{program}: {e}"))?;
        let mut input = child.stdin.take().ok_or("it has no standard input")?;
        // A program that has ended without reading says why with its exit code.
        let written = input.write_all(mail.as_bytes()).await;
        drop(input);
        let done = child.wait_with_output().await.map_err(|e| format!("{program}: {e}"))?;
        if done.status.success() {
            return written.map_err(|e| format!("{program}: {e}"));
        }
        let said: String =
            String::from_utf8_lossy(&done.stderr).trim().chars().take(SAID_MAX_CHARS).collect();
        Err(format!("{program} ended with {}: {said}", done.status))
    };
    match tokio::time::timeout(MAIL_LIMIT, sending).await {
        Ok(sent) => sent,
        Err(_) => Err(format!("{program} took longer than {} s", MAIL_LIMIT.as_secs())),
    }
}

/// Whether somebody can be sent mail under this address: one address, and nothing that could be more.
pub fn mail_address(text: &str) -> Result<String, String> {
    let has_parts = text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@._+-=".contains(c);
    if has_parts && text.chars().all(is_plain) && !text.starts_with('-') && text.matches('@').count() == 1 {
        Ok(text.to_owned())
    } else {
        Err("it is no address such as ops@example.org".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::Severity;
    use crate::alerts::store::AlertView;

    fn notice() -> Notice {
        let alert = AlertView {
            id: 7,
            code: "E5005".to_owned(),
            severity: Severity::Critical,
            subject: "x-OST0000\nBcc: eve@example.org".to_owned(),
            text: "It does not answer.".to_owned(),
            next: "start it".to_owned(),
            raised_s: 0,
            ended_s: None,
            acknowledged_by: None,
            acknowledged_s: None,
            is_silenced: false,
            is_notified: true,
        };
        Notice { event: "raised", fs: "x".to_owned(), alert }
    }

    fn ways(sendmail: &str) -> Ways {
        Ways {
            webhook: None,
            mail_to: vec!["ops@example.org".to_owned()],
            mail_from: "brindle@example.org".to_owned(),
            sendmail: sendmail.to_owned(),
        }
    }

    #[test]
    fn a_mail_has_one_head_whatever_the_alert_says() {
        let (subject, body) = alert_words(&notice());
        let mail = mail(&ways(""), &subject, &body);
        let (head, body) = mail.split_once("\n\n").unwrap();
        assert!(head.contains("To: ops@example.org\n") && !head.contains("\nBcc:"), "{head}");
        assert!(head.contains("Subject: [brindle x] raised: E5005 x-OST0000 Bcc: eve"), "{head}");
        assert!(body.starts_with("It does not answer.") && body.contains("brindle explain E5005"), "{body}");
    }

    #[test]
    fn addresses_are_checked() {
        assert!(mail_address("ops+brindle@mail.example.org").is_ok());
        for bad in ["ops", "@x", "a@", "a@b@c", "a b@c", "a@b,c@d", "-oX@b", "a@b\nBcc: c@d", "<a@b>"] {
            assert!(mail_address(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn the_program_gets_the_mail_and_its_refusal_is_told() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (program, got) = (dir.path().join("sendmail"), dir.path().join("got"));
        std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" >{0}\ncat >>{0}\n", got.display())).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let ways = ways(program.to_str().unwrap());
        let (subject, body) = alert_words(&notice());
        send_mail(&ways.sendmail, &mail(&ways, &subject, &body)).await.unwrap();
        let text = std::fs::read_to_string(&got).unwrap();
        assert!(text.starts_with("-t -i\nFrom: brindle@example.org\nTo: ops@example.org\n"), "{text}");
        let refused = send_mail("false", "x").await.unwrap_err();
        assert!(refused.contains("false ended with"), "{refused}");
        assert!(send_mail("/nowhere/sendmail", "x").await.unwrap_err().contains("/nowhere/sendmail"));
    }
}
