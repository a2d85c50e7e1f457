import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright'
import { afterAll, describe, expect, it } from 'vitest'
import { noViolations, violationsByColours } from '../../support/axe.ts'
import { drawnSplits, type Files, gzip, idxFolder } from '../../support/idx-files.ts'
import {
  button,
  drivePages,
  dropOn,
  photograph,
  seeRun,
  see as seeTitle,
} from '../../support/page-driver.ts'

/** Each demo at its own address, as people use it. */
/** A folder with digits, which the page's server offers at /data/. */
let data: string
const { served, openContext, openTab } = drivePages({
  async serving() {
    data = await mkdtemp(join(tmpdir(), 'tabring-idx-'))
    for (const [name, bytes] of Object.entries(
      idxFolder(drawnSplits({ seed: 6, train: 200, test: 40 })),
    ))
      await writeFile(join(data, `${name}.gz`), gzip(bytes))
    return { mounts: { '/data/': data } }
  },
})
afterAll(async () => {
  if (data) await rm(data, { recursive: true })
})

/** Waits for the title, of the run with that number if one is given. */
async function see(page: Page, title: string | RegExp, run?: number): Promise<void> {
  if (run) await seeRun(page, run)
  await seeTitle(page, title)
}
const picture = (page: Page, name: string) => photograph(page, `demo-${name}`)

describe('playground', () => {
  /** The picture below the points, which has the newest answer. */
  const boundaryOf = (page: Page) =>
    page
      .locator('.plane canvas[data-has-field=true]')
      .evaluate((canvas) => (canvas as HTMLCanvasElement).toDataURL())

  /** Of places all over the plane, those where the boundary says class 1: its colours have more red than blue. */
  const classesOf = (page: Page) =>
    page.locator('.plane canvas[data-has-field=true]').evaluate((canvas) => {
      const { width, height } = canvas as HTMLCanvasElement
      const { data } = (canvas as HTMLCanvasElement)
        .getContext('2d')!
        .getImageData(0, 0, width, height)
      const side = 40
      return Array.from({ length: side * side }, (_, i) => {
        const x = Math.floor((((i % side) + 0.5) / side) * width)
        const y = Math.floor(((Math.floor(i / side) + 0.5) / side) * height)
        const at = 4 * (y * width + x)
        return data[at] > data[at + 2]
      })
    })
  /** The share of the plane where two boundaries say different classes. */
  const apart = (a: readonly boolean[], b: readonly boolean[]) =>
    a.filter((one, i) => one !== b[i]).length / a.length

  it('five tabs with a sector each disagree without an exchange, and agree with one', async () => {
    const maker = await openTab(
      `${served.localUrl}demos/playground/?data=xor&steps=150&maxStepsPerSec=0`,
    )
    await see(maker, 'Alone in the room')
    await picture(maker, 'playground-lobby')
    const link = await maker.getByLabel('Open this link').inputValue()
    expect(link).toContain('/?demo=playground#key=')
    const pages = [maker]
    for (let tab = 1; tab < 5; tab++) pages.push(await openTab(link))
    await see(maker, 'Ready with 5 ranks')

    await button(maker, 'own sector').click()
    await button(maker, 'off: each rank alone').click()
    await maker.waitForURL(/strategy=alone&partition=own-slice/)
    await button(maker, 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Finished')))
    // Each tab asks once more behind the last step: then any two differ over a part of the plane.
    const minApart = async () => {
      const classes = await Promise.all(pages.map(classesOf))
      return Math.min(
        ...classes.flatMap((one, i) => classes.slice(0, i).map((other) => apart(one, other))),
      )
    }
    await expect.poll(minApart, { timeout: 20_000 }).toBeGreaterThan(0.1)
    const alone = await classesOf(maker)
    await picture(maker, 'playground-alone-rank-0')
    await picture(pages[1], 'playground-alone-rank-1')

    await button(maker, 'on: averaged over all ranks').click()
    await button(maker, 'Start again').click()
    await Promise.all(pages.map((page) => see(page, 'Finished', 2)))
    // Each tab asks once more behind the last step.
    await expect
      .poll(async () => new Set(await Promise.all(pages.map(boundaryOf))).size, { timeout: 20_000 })
      .toBe(1)
    await picture(maker, 'playground-ddp')
    expect(apart(alone, await classesOf(maker))).toBeGreaterThan(0.1)
  })

  it('three ranks of one tab without an exchange are shown one beside the other; in the picture demo too', async () => {
    const page = await openTab(
      `${served.localUrl}demos/playground/?ranks=3&strategy=alone&partition=own-slice&data=xor&steps=150&maxStepsPerSec=0`,
    )
    await see(page, 'Alone in the room')
    await page.getByText('start now with the 3 ranks of this tab').waitFor()
    await button(page, 'Start').click()
    await see(page, 'Finished')
    const planes = page.locator('.ranks figure')
    expect(await planes.locator('figcaption').allTextContents()).toEqual([
      'rank 0',
      'rank 1',
      'rank 2',
    ])
    await planes.first().scrollIntoViewIfNeeded()
    const boundaries = page.locator('.ranks canvas[data-has-field=true]')
    await boundaries.nth(2).waitFor()
    const drawn = await boundaries.evaluateAll((all) =>
      all.map((canvas) => (canvas as HTMLCanvasElement).toDataURL()),
    )
    expect(new Set(drawn).size).toBe(3)
    await picture(page, 'playground-ranks')

    await page.locator('#setting-demo').selectOption('picture')
    await page.getByText('More settings', { exact: true }).click()
    await page.getByLabel('Steps', { exact: true }).fill('20')
    await button(page, 'Start again').click()
    await see(page, 'Finished', 2)
    const learned = page.locator('#demo [data-rank]')
    await learned.first().scrollIntoViewIfNeeded()
    await learned.nth(2).locator('canvas').waitFor()
    await expect
      .poll(() => learned.locator('figcaption').allTextContents())
      .toEqual([0, 1, 2].map((rank) => expect.stringMatching(`rank ${rank}learned: [0-9.]+ dB`)))
    await picture(page, 'picture-ranks')
  })
})

describe('digits', () => {
  const folder = idxFolder(drawnSplits({ seed: 5, train: 300, test: 60 }))
  const broken = {
    'train-labels': folder['test-labels-idx1-ubyte'],
    'train-images-idx3-ubyte': folder['train-images-idx3-ubyte'],
  }
  const drop = (page: Page, files: Files) => dropOn(page.locator('.demo.digits'), files)

  const bars = (page: Page) =>
    page.getByRole('list', { name: 'Probability of each digit' }).locator('.bar-value')

  it.each(['mlp', 'cnn'])(
    '%s: says what a drawn digit is, and shows filters and mistakes',
    async (model) => {
      // The mlp as it comes, which has a result to reach.
      const query = model === 'mlp' ? '' : '?model=cnn&steps=40'
      const page = await openTab(`${served.localUrl}demos/digits/${query}`)
      await see(page, 'Alone in the room')
      const boxOf = async () => (await page.locator('.pad').boundingBox())!
      let box = await boxOf()
      await page.mouse.move(box.x + 0.5 * box.width, box.y + 0.15 * box.height)
      await page.mouse.down()
      await page.mouse.move(box.x + 0.52 * box.width, box.y + 0.85 * box.height, { steps: 15 })
      await page.mouse.up()
      expect(await bars(page).allTextContents()).toEqual(Array(10).fill('–'))
      await button(page, 'Start').click()
      await see(page, 'Finished')
      await page.locator('.tiles .tile').first().waitFor()
      await page.getByRole('heading', { name: /among 512 held-out digits$/ }).waitFor()
      await bars(page).filter({ hasText: /[1-9]/ }).first().waitFor()
      const one = await bars(page).allTextContents()
      const shares = one.map(Number.parseFloat)
      expect(Math.abs(shares.reduce((sum, share) => sum + share, 0) - 100)).toBeLessThan(1)
      // An upright line is a 1 after few steps already.
      expect(shares.indexOf(Math.max(...shares))).toBe(1)
      await picture(page, `digits-${model}`)
      if (model === 'mlp') await page.locator('.expected [data-is=reached]').waitFor()
      else await page.locator('.expected [data-is=open]').getByText('Not checked').waitFor()
      expect(await violationsByColours(page)).toEqual(noViolations)

      await button(page, 'Clear').click()
      expect(await bars(page).allTextContents()).toEqual(Array(10).fill('–'))
      box = await boxOf() // the end of the run has moved it
      const ring = Array.from({ length: 25 }, (_, i) => (2 * Math.PI * i) / 24)
      for (const [i, angle] of ring.entries()) {
        const x = box.x + box.width * (0.5 + 0.22 * Math.sin(angle))
        await page.mouse.move(x, box.y + box.height * (0.5 - 0.33 * Math.cos(angle)))
        if (i === 0) await page.mouse.down()
      }
      await page.mouse.up()
      await expect
        .poll(async () => {
          const shares = (await bars(page).allTextContents()).map(Number.parseFloat)
          return shares.indexOf(Math.max(...shares))
        })
        .toBe(0)
      if (model === 'cnn') return

      // By the keyboard: an upright line again.
      const pad = page.getByRole('application', { name: 'Pad to draw a digit on' })
      await pad.focus()
      await page.keyboard.press('Delete')
      expect(await bars(page).allTextContents()).toEqual(Array(10).fill('–'))
      await page.keyboard.press('ArrowDown')
      expect(await bars(page).allTextContents()).toEqual(Array(10).fill('–'))
      await page.keyboard.press('Space')
      for (let i = 0; i < 13; i++) await page.keyboard.press('ArrowDown')
      await page.getByText('Pen down, column 11, row 18 of 20').waitFor()
      await expect
        .poll(async () => {
          const shares = (await bars(page).allTextContents()).map(Number.parseFloat)
          return shares.indexOf(Math.max(...shares))
        })
        .toBe(1)
      await picture(page, 'digits-keyboard')
    },
  )

  it('takes four IDX files that are dropped, on two tabs, or a folder with an address', async () => {
    const maker = await openTab(`${served.localUrl}demos/digits/?steps=20`)
    await see(maker, 'Alone in the room')
    await maker.locator('#setting-data').selectOption('given')
    await maker
      .locator('#setting-data-note')
      .filter({ hasText: 'No data yet: choose or drop the four files' })
      .waitFor()
    expect(await button(maker, 'Start').isDisabled()).toBe(true)
    await drop(maker, { 'notes.txt': new TextEncoder().encode('no digits'), ...broken })
    await maker
      .getByText('notes.txt: it begins with 0x6e 0x6f 0x20 0x64; an IDX file begins with 0x00')
      .waitFor()
    await maker.getByText('expected 300 labels for the 300 images').waitFor()
    await picture(maker, 'digits-wrong-files')
    await drop(maker, folder)
    await maker.getByText('trains on 300 images, and 60 are held out').waitFor()
    await expect.poll(() => maker.locator('#setting-data').inputValue()).toBe('given')
    expect(maker.url()).not.toContain('given')
    // How many they are is known before the run.
    await maker.getByLabel('Batch size').fill('400')
    await button(maker, 'Set it to 300').click()
    await expect.poll(() => maker.getByLabel('Batch size').inputValue()).toBe('300')
    await maker.getByLabel('Batch size').fill('64')
    await picture(maker, 'digits-files')

    const second = await openTab(await maker.getByLabel('Open this link').inputValue())
    await see(maker, 'Ready with 2 ranks')
    await button(maker, 'Start').click()
    for (const page of [maker, second]) {
      await see(page, 'Finished')
      await page.getByRole('heading', { name: /among 60 held-out digits$/ }).waitFor()
    }

    await maker.getByLabel('Or the address of a folder').fill('/data/')
    await button(maker, 'Use this folder').click()
    await maker.waitForURL(/data=%2Fdata%2F/)
    await button(maker, 'Start again').click()
    for (const page of [maker, second]) {
      await see(page, 'Finished')
      await page.getByRole('heading', { name: /among 40 held-out digits$/ }).waitFor()
    }

    // The room's link has the experiment that is on show, and a tab that comes by it sees that one.
    await maker.locator('#setting-demo').selectOption('picture')
    const link = maker.getByLabel('Open this link')
    await expect.poll(() => link.inputValue()).toContain('/?demo=picture#key=')
    const third = await openTab(await link.inputValue())
    await third.locator('.demo.picture').waitFor()
    await maker.locator('#setting-demo').selectOption('digits')
    await expect.poll(() => link.inputValue()).toMatch(/\/#key=/)
  })

  it('a finger draws on a phone, and does not scroll the page', async () => {
    const context = await openContext({
      viewport: { width: 375, height: 667 },
      hasTouch: true,
      isMobile: true,
    })
    const page = await openTab(`${served.localUrl}demos/digits/`)
    await see(page, 'Alone in the room')
    const pad = page.locator('.pad')
    await pad.waitFor()
    // Near the top: what a person sets is folded behind it, and opens by a button.
    expect((await pad.boundingBox())!.y).toBeLessThan(2.2 * 667)
    const seed = page.getByLabel('Seed')
    expect(await seed.isVisible()).toBe(false)
    await page.getByRole('button', { name: 'Show Experiment' }).click()
    await seed.waitFor()
    await page.getByRole('button', { name: 'Hide Experiment' }).click()
    await seed.waitFor({ state: 'hidden' })
    await pad.scrollIntoViewIfNeeded()
    const client = await context.newCDPSession(page)
    const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', x?: number, y?: number) =>
      client.send('Input.dispatchTouchEvent', {
        type,
        touchPoints: x === undefined ? [] : [{ x, y: y! }],
      })
    const swipe = async (x: number, from: number, to: number) => {
      await touch('touchStart', x, from)
      for (let i = 1; i <= 10; i++) await touch('touchMove', x, from + ((to - from) * i) / 10)
      await touch('touchEnd')
    }
    const scrolled = () => page.evaluate(() => scrollY)
    const box = (await pad.boundingBox())!
    const before = await scrolled()
    await swipe(box.x + box.width / 2, box.y + 0.8 * box.height, box.y + 0.2 * box.height)
    await page.getByRole('img', { name: 'The digit that you drew' }).waitFor()
    expect(await scrolled()).toBe(before)
    // Beside the pad the same swipe scrolls.
    await swipe(8, box.y + 0.8 * box.height, box.y + 0.2 * box.height)
    await expect.poll(scrolled).not.toBe(before)
  })
})
