/**
 * Resolves in a separate task, after those that wait now.
 *
 * By a message and not by a timer: browsers let chained timers of a page that nobody sees run once a second or less. Node has a task for this,
 * where an open channel would keep its process alive.
 */
export function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve)
    else post(resolve)
  })
}

const waiting: (() => void)[] = []
let channel: MessageChannel | undefined

function post(resolve: () => void): void {
  if (!channel) {
    channel = new MessageChannel()
    channel.port1.onmessage = () => waiting.shift()!()
  }
  waiting.push(resolve)
  channel.port2.postMessage(null)
}

/** Returns a function that does one work after the other: each begins once the one before has ended, well or not. */
export function oneAtATime(): <T>(work: () => T | Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve()
  return (work) => {
    const ended = last.then(work)
    last = ended.catch(() => undefined)
    return ended
  }
}
