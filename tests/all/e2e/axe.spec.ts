import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ensureBuilt } from '../../../node/build.ts'
import { type Served, serve } from '../../../node/serve.ts'
import type {} from '../../e2e/fixtures/states.tsx'
import { violations } from '../../support/axe.ts'
import { openStates, type StatesPage } from '../../support/states-page.ts'

/** What axe finds to be in the way of people who use a keyboard, a screen reader or other colours: nothing may be found. */

const looks = [
  { width: 1400, height: 900, colorScheme: 'light' },
  { width: 1400, height: 900, colorScheme: 'dark' },
  { width: 375, height: 667, colorScheme: 'light' },
  { width: 375, height: 667, colorScheme: 'dark' },
] as const

const views = ['lab', 'show'] as const

let opened: StatesPage
let served: Served
beforeAll(async () => {
  opened = await openStates()
  served = await serve({ root: await ensureBuilt(), port: 0 })
})
afterAll(async () => {
  await opened?.close()
  await served?.close()
})

describe('axe finds nothing', { timeout: 120_000 }, () => {
  const inViews = looks.flatMap((look) => views.map((view) => ({ ...look, view })))
  it.each(inViews)('in any state of the $view, at $width px, $colorScheme', async (look) => {
    const { page, complaints } = opened
    await page.setViewportSize(look)
    await page.emulateMedia({ colorScheme: look.colorScheme })
    const found: Record<string, string[]> = {}
    for (const name of await page.evaluate(() => window.states.names)) {
      await page.evaluate(([shown, view]) => window.states.show(shown, view), [
        name,
        look.view,
      ] as const)
      const wrong = await violations(page)
      if (wrong.length > 0) found[name] = wrong
    }
    expect(found).toEqual({})
    expect(complaints).toEqual([])
  })

  it('but what is wrong: a control without a name, a text too pale', async () => {
    const { page } = opened
    await page.evaluate(async () => {
      await window.states.show('alone')
      const wrong = '<button></button><p style="color:#777;background:#666">pale</p>'
      document.querySelector('main')!.insertAdjacentHTML('beforeend', wrong)
    })
    const rules = (await violations(page)).map((text) => text.split(':')[0])
    expect(rules.sort()).toEqual(['button-name', 'color-contrast'])
  })

  it('in the dialog of the QR code', async () => {
    const { page } = opened
    await page.evaluate(() => window.states.show('lobby-maker'))
    await page.getByRole('button', { name: 'QR code' }).click()
    await page.locator('dialog .qr[data-is=drawn]').waitFor()
    expect(await violations(page)).toEqual([])
    await page.keyboard.press('Escape')
  })

  it.each([
    ['the first screen', '', '.first-seat .thumbnail'],
    ['the self-test', 'selftest.html', 'main button'],
    ['the benchmark', 'bench.html', 'main button'],
    ['the course', 'class/', '.lessons li'],
    ["the teacher's page", 'class/teacher/', '.guide'],
    ['the documentation', 'docs/', '.site a'],
    ['a lesson', '?lesson=2&demo=playground&strategy=alone&partition=own-slice', '.lesson'],
  ])('on %s', async (_, name, drawn) => {
    const page = await opened.browser.newPage()
    await page.goto(new URL(name, served.localUrl).href)
    await page.locator(drawn).first().waitFor()
    for (const { colorScheme, ...size } of looks) {
      await page.setViewportSize(size)
      await page.emulateMedia({ colorScheme })
      expect(await violations(page), `${size.width} ${colorScheme}`).toEqual([])
    }
    await page.close()
  })
})
