import { readFile } from 'node:fs/promises'
import type { Page } from 'playwright'
import { describe, expect, it } from 'vitest'
import { button, drivePages, see } from '../../support/page-driver.ts'

/** What the page shows and saves of runs: run table, chart of several, Gantt strip, links, exports, checkpoints. */

const { served, openTab } = drivePages()

const runRows = (page: Page) => page.locator('#runs tbody tr')

async function downloaded(page: Page, click: () => Promise<void>): Promise<string> {
  const download = page.waitForEvent('download')
  await click()
  return readFile(await (await download).path(), 'utf8')
}

describe('the training page, live', { timeout: 240_000 }, () => {
  it('two ranks: lanes of both, links by their own counters, runs side by side, and what it saves', async () => {
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
        Array(2).fill(expect.stringMatching(/^[\d.,]+ [KM]?i?B\/s\s*peak \d+$/)),
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

    // The sampled step moves on, but for who looks at it; the slider goes back to the first.
    const aside = maker.locator('#gantt .aside')
    const slider = maker.getByRole('slider', { name: 'Sampled step' })
    const rates = () => maker.locator('#ring .edge text').allTextContents()
    const newSamples = async () => {
      const before = await rates()
      await expect.poll(rates, { timeout: 20_000 }).not.toEqual(before)
    }
    await maker.locator('#gantt summary').blur()
    await maker.mouse.move(1, 1)
    await slider.focus()
    const held = await aside.innerText()
    await newSamples()
    expect(await aside.innerText()).toBe(held)
    await maker.keyboard.press('Home')
    await expect.poll(() => aside.innerText()).toMatch(/^step 3,/)
    await slider.blur()
    await newSamples()
    expect(await aside.innerText()).toMatch(/^step 3,/)
    expect(await slider.getAttribute('aria-valuetext')).toMatch(/^step 3, .* ago$/)
    await slider.focus()
    await maker.keyboard.press('End')
    await slider.blur()
    await expect.poll(() => aside.innerText()).not.toMatch(/^step 3,/)
    const followed = await aside.innerText()
    await expect.poll(() => aside.innerText(), { timeout: 20_000 }).not.toBe(followed)

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
    await maker
      .locator('.chart[data-kind="loss"][aria-label*="; 1 earlier run for comparison"]')
      .waitFor()
    const csv = await downloaded(maker, () => button(maker, 'Loss as CSV').click())
    const lines = csv.trim().split('\n')
    expect(lines[0]).toBe(
      'run,started,experiment,ranks,step,samples,seconds,loss,loss_is_mean_of_steps,test_loss,metric,training_value,test_value',
    )
    // Loss and accuracy, each of training and of held-out samples: in the file as in the chart's words.
    const losses = maker.locator('.chart[data-kind="loss"]')
    const accuracies = maker.locator('.chart[data-kind="metric"]')
    const chart = (await losses.getAttribute('aria-label'))!
    expect(chart).toMatch(/, [\d.]+ at step 30, test loss [\d.]+; 1 earlier/)
    const below = (await accuracies.getAttribute('aria-label'))!
    expect(below).toMatch(/^Accuracy by step: training [\d.]+ %, test [\d.]+ %; 1 earlier/)
    const [loss, , testLoss, , trainValue, testValue] = lines.at(-1)!.split(',').slice(-6)
    const received = [loss, testLoss].map(Number)
    expect(received.every((value) => value > 0 && value < 10)).toBe(true)
    expect(chart).toContain(`test loss ${Number(testLoss).toFixed(4)}`)
    const percent = [trainValue, testValue].map((value) => Number((100 * Number(value)).toFixed(2)))
    const words = [...below.matchAll(/([\d.]+) %/g)].map(([, value]) => Number(value))
    expect(words).toEqual(percent)
    expect(lines.filter((line) => line.includes('Learning rate 0.01'))).toHaveLength(30)
    expect(lines.length).toBeGreaterThan(40)

    // Pointed at together, and in words.
    const pointers = [losses, accuracies].map((plot) => plot.locator('.u-cursor-x'))
    await losses.locator('.u-over').hover()
    await maker
      .locator('#loss-chart .pointed', { hasText: /^step \d+: *[\d.]+.* · [\d.]+ %/ })
      .waitFor()
    const [own, synced] = await Promise.all(
      pointers.map((line) => line.evaluate(({ style }) => style.transform)),
    )
    expect(own).toMatch(/^translate/)
    expect(synced).toBe(own)

    // Zoomed by keys on either, and back.
    const all = maker.getByRole('button', { name: 'Show all' })
    await expect.poll(() => all.isDisabled()).toBe(true)
    for (const plot of [losses, accuracies]) {
      await plot.focus()
      await maker.keyboard.press('+')
      await expect.poll(() => all.isDisabled()).toBe(false)
      await maker.keyboard.press('Escape')
      await expect.poll(() => all.isDisabled()).toBe(true)
    }

    // Hidden, named, deleted; and after a reload as it was left.
    const inLegend = maker.locator('#loss-chart .of-run').getByRole('checkbox')
    expect(await inLegend.count()).toBe(2)
    await inLegend.first().uncheck()
    await maker.locator('.chart[data-kind="loss"]:not([aria-label*="earlier"])').waitFor()
    await expect.poll(() => runRows(maker).nth(1).getByRole('checkbox').isChecked()).toBe(false)
    await inLegend.first().check()
    await maker.locator('.chart[data-kind="loss"][aria-label*="earlier"]').waitFor()
    await runRows(maker).nth(1).getByRole('checkbox').uncheck()
    await maker.locator('.chart[data-kind="loss"]:not([aria-label*="earlier"])').waitFor()
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
    const page = await openTab(`${served.localUrl}?steps=6&batchSize=32&checkpointEvery=3`)
    await see(page, 'Alone in the room')
    await page.locator('#checkpoints').getByText('None yet').waitFor()
    await button(page, 'Start').click()
    await see(page, 'Finished')
    const items = page.locator('#checkpoints li')
    await expect.poll(() => items.count()).toBe(2)
    expect(await items.first().innerText()).toMatch(
      /digits mlp, step 6\s+latest\s+best\s+test [\d.]+ % · digits, seed 0, adamw · [\d.]+ MiB/,
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
    await page.locator('#checkpoints').getByText('Start resumes from step 3').waitFor()
    await expect.poll(() => page.getByLabel('Batch size').inputValue()).toBe('32')
    await button(page, 'Start from step 3').click()
    await page.locator('#summary').getByText('Resumed from').waitFor({ timeout: 60_000 })
    expect(await page.locator('#summary').innerText()).toMatch(
      /Steps\s+8\s[\s\S]*Resumed from\s+step 3/,
    )

    // The run has saved itself at its end; a person's own save of it stays.
    const last = items.filter({ hasText: 'step 8' })
    await last.waitFor()
    expect(await last.innerText()).not.toContain('kept')
    await button(page, 'Save checkpoint').click()
    await page.locator('#summary').getByText('Step 8 is saved').waitFor()
    await last.filter({ hasText: 'kept' }).waitFor()

    // The page refuses the weights alone, which are no run.
    const weights = page.waitForEvent('download')
    await page.getByRole('button', { name: 'Download weights' }).click()
    await page.getByLabel('Checkpoint file').setInputFiles(await (await weights).path())
    await page.locator('#checkpoints .error').getByText('holds only a model’s weights').waitFor()
    await page.getByLabel('Checkpoint file').setInputFiles({
      name: 'no.safetensors',
      mimeType: 'application/octet-stream',
      buffer: Buffer.from('nothing'),
    })
    await page.getByText('no.safetensors is not a checkpoint of this page').waitFor()
  })
})
