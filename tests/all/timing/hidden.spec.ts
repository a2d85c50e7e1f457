import { expect, test } from 'vitest'
import { flagsAgainstThrottling } from '../../../node/chromium.ts'
import { openHiddenTabs } from '../../support/hidden-tabs.ts'

// `npm run bench -- hidden` waits for the browser's own five minutes; here it throttles as hard after five seconds.
const shortGrace = '--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/5'
/** From then on a hidden page's timers also have a budget of a hundredth of the time. */
const budgetAfterSec = 10

test('two hidden tabs train on at the rate they have when they are seen', async () => {
  const hidden = await openHiddenTabs(2, [shortGrace])
  try {
    const { flags } = hidden.headed
    expect(flags).toContain(shortGrace)
    for (const flag of flagsAgainstThrottling) expect(flags).not.toContain(flag)
    expect(await hidden.states()).toEqual(['visible', 'visible'])
    const before = await hidden.measure(4)
    await hidden.hide()
    await hidden.measure(budgetAfterSec + 1)
    // Throttling would slow every window; other processes of the machine slow some.
    const windows = []
    for (let window = 0; window < 4; window++) windows.push(await hidden.measure(3))
    const unseen = windows.reduce((a, b) => (b.stepsPerSec > a.stepsPerSec ? b : a))
    expect(await hidden.states()).toEqual(['hidden', 'hidden'])
    await hidden.show()
    const after = await hidden.measure(4)
    // The pages' own timers show that the browser did throttle them.
    expect(Math.min(...before.timersPerSec)).toBeGreaterThan(5)
    for (const { timersPerSec } of windows) expect(Math.max(...timersPerSec)).toBeLessThan(1.5)
    const seen = (before.stepsPerSec + after.stepsPerSec) / 2
    expect(unseen.stepsPerSec / seen, JSON.stringify({ before, windows, after })).toBeGreaterThan(
      0.7,
    )
  } finally {
    await hidden.close()
  }
})
