/**
 * Resolves in a separate task, after those that wait now.
 *
 * By a message and not by a timer: browsers let chained timers of a page that nobody sees run once a second or less.
 */
export function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel()
    port1.onmessage = () => {
      port1.close()
      resolve()
    }
    port2.postMessage(null)
  })
}
