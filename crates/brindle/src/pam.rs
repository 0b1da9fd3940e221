//! `brindle pam-check`, which the manager starts for a user whose password the host knows ([`brindle_manager::access::pam`]).
//!
//! `libpam.so.0` is opened when it is needed: the binary needs no headers of PAM to be built, and no library to start. Source of the
//! calls and numbers: Linux-PAM 1.5, `pam_appl.h` and `_pam_types.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Read as _;
use std::ptr;

use brindle_manager::access::pam::{REFUSED, UNAVAILABLE};

use crate::exit::Done;

/// Longest password.
const PASSWORD_MAX_BYTES: u64 = 512;
/// Most messages of one turn of a conversation, as Linux-PAM has it.
const MESSAGES_MAX: c_int = 32;

const PAM_SUCCESS: c_int = 0;
const PAM_BUF_ERR: c_int = 5;
const PAM_PERM_DENIED: c_int = 6;
const PAM_AUTH_ERR: c_int = 7;
const PAM_USER_UNKNOWN: c_int = 10;
const PAM_MAXTRIES: c_int = 11;
const PAM_NEW_AUTHTOK_REQD: c_int = 12;
const PAM_ACCT_EXPIRED: c_int = 13;
const PAM_CONV_ERR: c_int = 19;
const PAM_PROMPT_ECHO_OFF: c_int = 1;
const PAM_PROMPT_ECHO_ON: c_int = 2;
const PAM_DISALLOW_NULL_AUTHTOK: c_int = 1;
const PAM_SILENT: c_int = 0x8000;

/// Arguments of `brindle pam-check`.
#[derive(clap::Args)]
pub struct Args {
    /// Name of the file in /etc/pam.d with the rules
    #[arg(long, value_name = "NAME")]
    service: String,
    /// The user; the password is read from standard input
    #[arg(value_name = "USER")]
    user: String,
}

#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct Response {
    text: *mut c_char,
    code: c_int,
}

type Converse = unsafe extern "C" fn(c_int, *mut *const Message, *mut *mut Response, *mut c_void) -> c_int;

#[repr(C)]
struct Conversation {
    converse: Converse,
    data: *mut c_void,
}

type Start =
    unsafe extern "C" fn(*const c_char, *const c_char, *const Conversation, *mut *mut c_void) -> c_int;
type Step = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Error = unsafe extern "C" fn(*mut c_void, c_int) -> *const c_char;

/// The calls of the library.
struct Pam {
    start: Start,
    authenticate: Step,
    account: Step,
    end: Step,
    error: Error,
}

/// Runs the command.
pub fn run(args: &Args) -> Done {
    match check(args) {
        Ok(true) => Done::Ok,
        Ok(false) => Done::Code(REFUSED),
        Err(why) => {
            eprintln!("{why}");
            Done::Code(UNAVAILABLE)
        }
    }
}

/// Whether the password on standard input is that of the user.
fn check(args: &Args) -> Result<bool, String> {
    let mut password = Vec::new();
    let read = std::io::stdin().take(PASSWORD_MAX_BYTES + 1).read_to_end(&mut password);
    read.map_err(|e| format!("cannot read the password: {e}"))?;
    let texts =
        (CString::new(args.service.as_str()), CString::new(args.user.as_str()), CString::new(password));
    let (Ok(service), Ok(user), Ok(password)) = texts else { return Ok(false) };
    if password.as_bytes().is_empty() || password.as_bytes().len() as u64 > PASSWORD_MAX_BYTES {
        return Ok(false);
    }
    Pam::open()?.check(&service, &user, &password)
}

impl Pam {
    fn open() -> Result<Pam, String> {
        // SAFETY: the name ends with a zero; the constructors of the library ask nothing of their caller.
        let library = unsafe { libc::dlopen(c"libpam.so.0".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("libpam.so.0 is not installed (Debian: libpam0g)".to_owned());
        }
        let find = |name: &CStr| {
            // SAFETY: the library is open and stays open; the name ends with a zero.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            if found.is_null() {
                Err(format!("libpam.so.0 has no {}", name.to_string_lossy()))
            } else {
                Ok(found)
            }
        };
        let (start, end, error) = (find(c"pam_start")?, find(c"pam_end")?, find(c"pam_strerror")?);
        let (authenticate, account) = (find(c"pam_authenticate")?, find(c"pam_acct_mgmt")?);
        // SAFETY: these functions have these types in every version of libpam.so.0.
        unsafe {
            Ok(Pam {
                start: std::mem::transmute::<*mut c_void, Start>(start),
                authenticate: std::mem::transmute::<*mut c_void, Step>(authenticate),
                account: std::mem::transmute::<*mut c_void, Step>(account),
                end: std::mem::transmute::<*mut c_void, Step>(end),
                error: std::mem::transmute::<*mut c_void, Error>(error),
            })
        }
    }

    fn check(&self, service: &CStr, user: &CStr, password: &CStr) -> Result<bool, String> {
        let conversation = Conversation { converse: answer, data: password.as_ptr().cast_mut().cast() };
        let mut handle = ptr::null_mut();
        // SAFETY: all texts end with a zero; they and the conversation outlive the handle, which ends below.
        let begun = unsafe {
            (self.start)(service.as_ptr(), user.as_ptr(), &raw const conversation, &raw mut handle)
        };
        if begun != PAM_SUCCESS {
            return Err(format!("pam_start: error {begun}"));
        }
        // SAFETY: the handle is that of a start that succeeded.
        let mut said = unsafe { (self.authenticate)(handle, PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK) };
        if said == PAM_SUCCESS {
            // SAFETY: as above.
            said = unsafe { (self.account)(handle, PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK) };
        }
        let checked = match said {
            PAM_SUCCESS => Ok(true),
            PAM_PERM_DENIED | PAM_AUTH_ERR | PAM_USER_UNKNOWN | PAM_MAXTRIES | PAM_NEW_AUTHTOK_REQD
            | PAM_ACCT_EXPIRED => Ok(false),
            error => {
                // SAFETY: the library returns a text that ends with a zero and that nobody frees.
                let text = unsafe { CStr::from_ptr((self.error)(handle, error)) };
                Err(format!("{} (error {error})", text.to_string_lossy()))
            }
        };
        // SAFETY: the handle is not used after this.
        unsafe { (self.end)(handle, said) };
        checked
    }
}

/// Answers what modules ask: the password to each question whose answer is not shown, nothing to messages. Any other question is one
/// that a log-in page cannot put.
///
/// # Safety
/// Called by PAM with `count` messages, and with the password of [`Pam::check`] as `data`.
unsafe extern "C" fn answer(
    count: c_int,
    messages: *mut *const Message,
    answers: *mut *mut Response,
    data: *mut c_void,
) -> c_int {
    let Some(len) = usize::try_from(count).ok().filter(|_| (1..=MESSAGES_MAX).contains(&count)) else {
        return PAM_CONV_ERR;
    };
    // SAFETY: plain memory, which PAM frees.
    let made: *mut Response = unsafe { libc::calloc(len, size_of::<Response>()) }.cast();
    if made.is_null() {
        return PAM_BUF_ERR;
    }
    for at in 0..len {
        // SAFETY: PAM gives `count` pointers to messages; there are as many responses.
        let (style, response) = unsafe { ((**messages.add(at)).style, &mut *made.add(at)) };
        match style {
            // SAFETY: the data is the password, which ends with a zero; PAM frees the copy.
            PAM_PROMPT_ECHO_OFF => response.text = unsafe { libc::strdup(data.cast()) },
            PAM_PROMPT_ECHO_ON => {
                // SAFETY: each text is a copy of our own or null; nobody else has seen them.
                unsafe {
                    (0..at).for_each(|n| libc::free((*made.add(n)).text.cast()));
                    libc::free(made.cast());
                }
                return PAM_CONV_ERR;
            }
            _ => {}
        }
    }
    // SAFETY: PAM gives a place for the answers.
    unsafe { *answers = made };
    PAM_SUCCESS
}
