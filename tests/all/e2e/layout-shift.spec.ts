import { expect, it } from 'vitest'
import { listShifts, shiftsOf } from '../../support/layout-shift.ts'
import { openIn } from '../../support/open-in.ts'
import { button, drivePages, see } from '../../support/page-driver.ts'

const driver = drivePages()

/** Shares of the window times how far, in all. */
const maxShift = 0.02

it.each([
  ['show', 1400],
  ['lab', 1400],
  ['lab', 820],
  ['lab', 390],
] as const)(
  'the %s keeps its places at %i px when it loads, trains and ends',
  async (view, width) => {
    const context = await driver.openContext({ viewport: { width, height: 900 }, isNew: true })
    await listShifts(context)
    await openIn(view, context)
    const page = await driver.openTab(`${driver.served.localUrl}?demo=digits&steps=100`, context)
    await button(page, 'Start').click()
    await see(page, 'Finished', 60_000)
    const shifts = await shiftsOf(page)
    const sum = shifts.reduce((all, { value }) => all + value, 0)
    expect({ sum, shifts }).toSatisfy(() => sum <= maxShift)
  },
)
