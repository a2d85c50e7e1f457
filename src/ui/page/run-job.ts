import { messageOf } from '../../util/errors.ts'
import type { Job } from './report-page.tsx'

/** Carries a page's job through its stages; `work` returns the closing sentence. A job that was cancelled is no failure. */
export async function runJob(
  show: (next: Partial<Job>) => void,
  signal: AbortSignal,
  work: () => Promise<string>,
): Promise<void> {
  show({ stage: 'running', text: 'Opening the device', done: 0, of: 1 })
  try {
    show({ stage: 'finished', text: await work() })
  } catch (thrown) {
    if (signal.aborted) show({ stage: 'stopped', text: 'Cancelled before the end.' })
    else show({ stage: 'failed', text: messageOf(thrown) })
  }
}
