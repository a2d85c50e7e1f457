import type { Page } from 'playwright'
import { expect, it } from 'vitest'
import { seededRandom } from '../../../src/util/virtual-env.ts'
import { button, drivePages, hashOf, invite, see } from '../../support/page-driver.ts'

/**
 * People who press whatever there is, in any order, in up to five tabs that come, go and reload: no error on a page, and behind it all the
 * room still trains one model. `TABRING_SEED` chooses other acts, `TABRING_ACTS` how many.
 */

const driver = drivePages()
const seed = Number(process.env.TABRING_SEED ?? 2)
const acts = Number(process.env.TABRING_ACTS ?? 70)
const maxTabs = 5

/** What can be pressed in the strip at the top and in an open question. */
const pressable = '.status button:enabled, dialog[open] button:enabled'

/** Presses one of them, whatever the page does meanwhile; returns its name, or null where there is none. */
const pressAny = (page: Page, share: number): Promise<string | null> =>
  page.evaluate(
    ([pressable, share]) => {
      const all = [...document.querySelectorAll<HTMLButtonElement>(pressable)]
      const one = all[Math.floor(share * all.length)]
      one?.click()
      return one?.textContent ?? null
    },
    [pressable, share] as const,
  )

/** Fills a field of the form as far as this tab has it and may. */
async function fill(page: Page, label: string, value: string): Promise<boolean> {
  const field = page.getByLabel(label, { exact: true })
  if (!(await field.isVisible()) || !(await field.isEnabled({ timeout: 500 }).catch(() => false)))
    return false
  return field.fill(value, { timeout: 500 }).then(
    () => true,
    () => false, // the page took it away meanwhile
  )
}

it('a room still trains one model after any sequence of clicks', async () => {
  const random = seededRandom(seed)
  const oneOf = <T>(all: readonly T[]): T => all[Math.floor(random() * all.length)]
  const maker = await driver.openTab(
    `${driver.served.localUrl}?demo=playground&data=xor&steps=100000`,
  )
  await see(maker, 'Alone in the room')
  const link = await invite(maker)
  const pages = [maker, await driver.openTab(link), await driver.openTab(link)]
  const done: string[] = []
  for (let i = 0; i < acts; i++) {
    const page = oneOf(pages)
    const kind = random()
    if (kind < 0.05 && pages.length < maxTabs) {
      pages.push(await driver.openTab(link))
      done.push('open')
    } else if (kind < 0.09 && pages.length > 2) {
      pages.splice(pages.indexOf(page), 1)
      await page.close()
      done.push('close')
    } else if (kind < 0.15) {
      await page.reload()
      done.push('reload')
    } else if (kind < 0.25) {
      const label = oneOf(['Batch size', 'Epochs', 'Seed'])
      const value = oneOf(['3', '64', '96', '0', 'x'])
      if (await fill(page, label, value)) done.push(`${label} ${value}`)
    } else {
      const pressed = await pressAny(page, random())
      if (pressed) done.push(pressed)
    }
    // Shorter than people's waits, mostly: so that acts come in the middle of others.
    await pages[0].waitForTimeout(900 * random() ** 2)
  }
  console.log(`seed ${seed}: ${done.join(', ')}`)
  expect(done).toContain('Start')

  // The current host ends what is running, and starts a run of forty steps.
  const starter = async () => {
    for (const page of pages) {
      // A question that is still open.
      await page.keyboard.press('Escape')
      if (
        await button(page, 'Stop')
          .isEnabled({ timeout: 200 })
          .catch(() => false)
      )
        await button(page, 'Stop')
          .click({ timeout: 1000 })
          .catch(() => undefined)
      const reset = await fill(page, 'Batch size', '96')
      if (!reset) continue
      await fill(page, 'Epochs', '2')
      await fill(page, 'Seed', '0')
      if (!(await page.getByLabel('Steps', { exact: true }).isVisible()))
        await page.getByText('More settings', { exact: true }).click()
      await fill(page, 'Steps', '40')
      const start = page.locator('.status').getByRole('button', { name: /^Start/ })
      if (await start.isEnabled({ timeout: 500 }).catch(() => false)) return start
    }
    return null
  }
  await expect.poll(starter, { timeout: 60_000, interval: 1000 }).not.toBeNull()
  await (await starter())!.click()
  const ends = pages.map(async (page) => {
    await see(page, 'Finished', 90_000)
    await page.locator('#summary').getByText('40', { exact: true }).waitFor()
    return hashOf(page)
  })
  const hashes = await Promise.all(ends)
  expect(hashes[0]).toMatch(/^[0-9a-f]{8,}$/)
  expect(new Set(hashes).size).toBe(1)
})
