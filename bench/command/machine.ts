import { availableParallelism, cpus, loadavg } from 'node:os'
import type { Browser } from 'playwright'
import { probeAdapter } from '../../node/adapter.ts'
import { chromiumTabs } from '../../node/chromium-tabs.ts'

/** The day of the measurement, for headings and names of files. */
export const today = (): string => new Date().toISOString().slice(0, 10)

/** How many processes wait for the machine now, this one among them. */
export const loadNow = (): string => loadavg()[0].toFixed(1)

/** What a browser computes on, for headings. */
export async function adapterWords(browser: Browser): Promise<string> {
  const { kind, answer } = await probeAdapter(chromiumTabs(browser))
  return kind === 'software' ? `**software adapter** (${answer})` : answer
}

/** The machine in words; `load` is `loadNow` of the moment that `when` names. */
export function machineLine(when: string, load = loadNow()): string {
  const cores = cpus().length
  // Fewer where the command was bound to some of them, as by taskset.
  const used = availableParallelism()
  const words = used < cores ? `${used} of its ${cores} cores` : `${cores} cores`
  return `${cpus()[0]?.model.trim() || 'unknown CPU'}, ${words}, load average ${when} ${load}`
}
