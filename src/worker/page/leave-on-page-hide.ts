import type { SignalClient } from '../../peer/tab/signal.ts'

/** Says goodbye when the tab closes or navigates, so the others learn it at once. Returns a function that undoes it. */
export function leaveOnPageHide(client: SignalClient): () => void {
  const leave = () => client.bye()
  window.addEventListener('pagehide', leave)
  return () => window.removeEventListener('pagehide', leave)
}
