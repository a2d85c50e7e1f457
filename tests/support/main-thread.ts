import type { Page } from 'playwright'

/** Processor time of a page's main thread during `work`. units: ms of each second. */
export async function mainThreadDuring(page: Page, work: () => Promise<void>): Promise<number> {
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  const busySec = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics')
    return metrics.find(({ name }) => name === 'TaskDuration')!.value
  }
  const before = await busySec()
  const beganMs = performance.now()
  await work()
  const tookSec = (performance.now() - beganMs) / 1000
  const busy = (await busySec()) - before
  await devtools.detach()
  return (1000 * busy) / tookSec
}
