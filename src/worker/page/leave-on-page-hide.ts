import type { SignalClient } from '../../peer/tab/signal.ts'
import type { ComputeClient } from './client.ts'

/**
 * Says goodbye when the tab closes or navigates, so the others learn it at once. Returns a function that undoes it.
 *
 * The worker ends before its links close, which they do one after the other: else it would decide, with the ranks that it still has a link
 * to, to continue without the rest.
 */
export function leaveOnPageHide(
  client: SignalClient,
  compute?: Pick<ComputeClient, 'terminate'>,
): () => void {
  const leave = () => {
    client.bye()
    compute?.terminate()
  }
  window.addEventListener('pagehide', leave)
  return () => window.removeEventListener('pagehide', leave)
}
