// Asks for something again and again while somebody looks, and not otherwise.

import { get } from './api.js';

/** Asks for `path` with pauses; `take` gets each answer, `fail` each fault. The result ends it. */
export function poll(path, pauseMs, take, fail) {
  let timer = null;
  let over = false;
  async function look() {
    try {
      const found = await get(path);
      if (!over) take(found);
    } catch (fault) {
      if (!over) fail(fault);
    }
    if (!over) timer = setTimeout(look, pauseMs);
  }
  look();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}
