// Calls of the manager's REST interface. A refusal is thrown as the fault that the manager sends.

let csrf = 'log-in';

/** Remembers what requests that change something must carry. */
export function useSession(session) {
  csrf = session?.csrf ?? 'log-in';
}

/** A fault of this browser's own, in the form of the manager's. */
function own(what, why, next) {
  return { code: '', what, subject: '', why: [why], data: '', next, status: 0 };
}

export async function call(method, path, body) {
  let response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method,
      headers: { 'content-type': 'application/json', 'x-brindle-csrf': csrf },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (e) {
    throw own('The manager does not answer', e.message, 'see whether it runs: brindle manager, or brindle dev up --manager');
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok || answer === null) {
    throw answer?.code ? answer : own('The manager gave an answer that this page does not understand', `status ${response.status}`, 'reload the page');
  }
  return answer;
}

export const get = (path) => call('GET', path);
export const post = (path, body) => call('POST', path, body);
export const remove = (path) => call('DELETE', path);
