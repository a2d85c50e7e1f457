import { readFile } from 'node:fs/promises'
import type { Browser, BrowserContext, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { ensureBuilt } from '../../node/build.ts'
import { type Served, serve } from '../../node/serve.ts'
import { launchBrowser } from '../support/launch-browser.ts'

/** What the page shows and saves of runs: run table, chart of several, Gantt strip, links, exports, checkpoints. */

let served: Served
let browser: Browser
let context: BrowserContext
let complaints: string[] = []

beforeAll(async () => {
  served = await serve({ root: await ensureBuilt(), port: 0 })
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser?.close()
  await served?.close()
})
afterEach(async () => {
  await context?.close()
  const found = complaints
  complaints = []
  expect(found).toEqual([])
})

async function openTab(url: string): Promise<Page> {
  const page = await context.newPage()
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  await page.goto(url)
  return page
}

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
const see = (page: Page, title: string, timeout = 60_000) =>
  page.locator('.status h2 [role=status]').filter({ hasText: title }).waitFor({ timeout })
const runRows = (page: Page) => page.locator('#runs tbody tr')

async function downloaded(page: Page, click: () => Promise<void>): Promise<string> {
  const download = page.waitForEvent('download')
  await click()
  return readFile(await (await download).path(), 'utf8')
}

describe('the training page, live', { timeout: 240_000 }, () => {
  it('two ranks: lanes of both, links by their own counters, runs side by side, and what it saves', async () => {
    context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
    const maker = await openTab(`${served.localUrl}?steps=1000000&batchSize=32`)
    await see(maker, 'Alone in the room')
    const link = await maker.getByLabel('Open this link').inputValue()
    const second = await openTab(link)
    await see(maker, 'Ready with 2 ranks')
    await button(maker, 'Start').click()

    // Both pages show both ranks, measured by each of them.
    for (const page of [maker, second]) {
      await page.bringToFront() // a tab behind another draws a frame a second, and is clicked as late
      await page.locator('#ring .edge text').nth(1).waitFor({ timeout: 90_000 })
      expect(await page.locator('#ring .edge text').allTextContents()).toEqual(
        Array(2).fill(expect.stringMatching(/^[\d.,]+ [KM]?i?B\/s\s*\d+ chunks?$/)),
      )
      await page.locator('#gantt summary').click()
      const rows = page.locator('#gantt tbody tr')
      expect(await rows.count()).toBe(2)
      const heads = await page.locator('#gantt thead th').allInnerTexts()
      expect(heads).toEqual(expect.arrayContaining(['reduce-scatter', 'all-gather', 'optimizer']))
      for (const row of await rows.all()) {
        const cells = await row.locator('th, td').allInnerTexts()
        expect(Number.parseFloat(cells[heads.indexOf('reduce-scatter')])).toBeGreaterThan(0)
        expect(Number.parseFloat(cells[heads.indexOf('all-gather')])).toBeGreaterThan(0)
      }
      expect(await page.locator('#memory tbody tr').count()).toBe(2)
      expect(await page.locator('#memory').innerText()).toMatch(/[KM]iB/)
    }
    await maker.bringToFront()
    const trace = JSON.parse(
      await downloaded(maker, () => button(maker, 'Timeline for Perfetto').click()),
    ) as { traceEvents: { ph: string; pid: number; name: string; dur?: number }[] }
    const spans = trace.traceEvents.filter(({ ph }) => ph === 'X')
    expect(new Set(spans.map(({ pid }) => pid))).toEqual(new Set([0, 1]))
    expect(spans.some(({ name }) => name.startsWith('reduceScatter'))).toBe(true)
    await button(maker, 'Stop').click()
    await see(maker, 'Stopped')

    // A second run with another learning rate lies beside the first.
    await maker.getByText('More settings').click()
    await maker.getByLabel('Learning rate').fill('0.01')
    await maker.getByLabel('Steps', { exact: true }).fill('30')
    await button(maker, 'Start again').click()
    await see(maker, 'Finished', 120_000)
    await expect.poll(() => runRows(maker).count()).toBe(2)
    const heads = await maker.locator('#runs thead th').allInnerTexts()
    expect(heads).toContain('Learning rate')
    expect(heads).not.toContain('Batch size')
    await maker.locator('.chart[aria-label*="; 1 earlier run beside it"]').waitFor()
    const csv = await downloaded(maker, () => button(maker, 'Loss as CSV').click())
    const lines = csv.trim().split('\n')
    expect(lines[0]).toBe('run,started,experiment,ranks,step,samples,seconds,loss,metric,value')
    expect(lines.filter((line) => line.includes('Learning rate 0.01'))).toHaveLength(30)
    expect(lines.length).toBeGreaterThan(40)

    // Zoomed by its keys, and back.
    const all = maker.getByRole('button', { name: 'Show all' })
    await expect.poll(() => all.isDisabled()).toBe(true)
    await maker.locator('.chart').focus()
    await maker.keyboard.press('+')
    await expect.poll(() => all.isDisabled()).toBe(false)
    await maker.keyboard.press('Escape')
    await expect.poll(() => all.isDisabled()).toBe(true)

    // Hidden, named, deleted; and after a reload as it was left.
    await runRows(maker).nth(1).getByRole('checkbox').uncheck()
    await maker.locator('.chart:not([aria-label*="earlier"])').waitFor()
    const name = runRows(maker).nth(0).getByRole('textbox')
    await name.fill('quick')
    await name.press('Enter')
    await maker.reload()
    await expect.poll(() => runRows(maker).count()).toBe(2)
    expect(await runRows(maker).nth(0).getByRole('textbox').inputValue()).toBe('quick')
    expect(await runRows(maker).nth(1).getByRole('checkbox').isChecked()).toBe(false)
    await maker.getByRole('button', { name: 'Delete quick' }).click()
    await expect.poll(() => runRows(maker).count()).toBe(1)

    // What is not a list of runs is no error.
    await maker.evaluate("sessionStorage.setItem('tabring-runs', '[\"a\", 7')")
    await maker.reload()
    await maker.getByRole('list', { name: 'Members' }).getByRole('listitem').first().waitFor()
    expect(await runRows(maker).count()).toBe(0)
  })

  it('checkpoints are listed, downloaded, deleted, and gone on from, also from a file', async () => {
    context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
    const page = await openTab(`${served.localUrl}?steps=6&batchSize=32&checkpointEvery=3`)
    await see(page, 'Alone in the room')
    await page.locator('#checkpoints').getByText('None yet').waitFor()
    await button(page, 'Start').click()
    await see(page, 'Finished')
    const items = page.locator('#checkpoints li')
    await expect.poll(() => items.count()).toBe(2)
    expect(await items.first().innerText()).toMatch(
      /digits mlp, step 6\s+latest\s+best\s+[\d.]+ MiB/,
    )
    const download = page.waitForEvent('download')
    await page.getByRole('button', { name: 'Download digits mlp, step 3' }).click()
    const file = await (await download).path()
    for (const step of [3, 6])
      await page.getByRole('button', { name: `Delete digits mlp, step ${step}` }).click()
    await expect.poll(() => items.count()).toBe(0)

    await page.getByText('More settings').click()
    // Settings of another run, which the file replaces but for how far to go.
    await page.getByLabel('Batch size').fill('64')
    await page.getByLabel('Steps', { exact: true }).fill('8')
    await page.getByLabel('Checkpoint file').setInputFiles({
      name: 'mine.safetensors',
      mimeType: 'application/octet-stream',
      buffer: await readFile(file),
    })
    await page.getByText('Start goes on from step 3').waitFor()
    await expect.poll(() => page.getByLabel('Batch size').inputValue()).toBe('32')
    await button(page, 'Start again').click()
    await page.locator('#summary').getByText('Went on from').waitFor({ timeout: 60_000 })
    expect(await page.locator('#summary').innerText()).toMatch(/Went on from\s+step 3/)

    await page.getByLabel('Checkpoint file').setInputFiles({
      name: 'no.safetensors',
      mimeType: 'application/octet-stream',
      buffer: Buffer.from('nothing'),
    })
    await page.locator('#checkpoints .error').waitFor()
  })
})
