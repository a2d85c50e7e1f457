/** Signals of one sender that wait: what its attempts at one link send in a few seconds. */
const maxEarly = 32

/** Adds a signal for a link that this side does not make yet to those that `wait`. What one sender has sent keeps those of no other one out. */
export function addEarly<T extends { readonly from: unknown }>(waiting: T[], signal: T): void {
  if (waiting.filter(({ from }) => from === signal.from).length < maxEarly) waiting.push(signal)
}
