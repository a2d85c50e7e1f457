import type { Browser, Page } from 'playwright'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { browserFlags } from '../../node/chromium.ts'
import { launchBrowser } from '../support/launch-browser.ts'
import {
  button,
  downloadWeights,
  hashOf,
  invite,
  members,
  see,
  seeRun,
} from '../support/page-driver.ts'
import { driveRooms } from '../support/page-rooms.ts'

/** The built page, driven as people do. tests/all/e2e/page.spec.ts has the rest. */

const { served, contexts, openContext, openTab, openRoom, actOn, lossWords, picture } = driveRooms()

// Three software adapters on two cores take their time.
/** Clicks Reset in the drawing in which it appears: sooner than any hand. */
const clickResetAtOnce = () =>
  new Promise<void>((resolve) => {
    new MutationObserver((_, observer) => {
      const reset = document.querySelector<HTMLButtonElement>('.main-acts .reset')
      if (!reset) return
      observer.disconnect()
      reset.click()
      resolve()
    }).observe(document.body, { childList: true, subtree: true })
  })

describe('a room', { timeout: 240_000 }, () => {
  it('three tabs of one browser join by the link, train over ports and agree', async () => {
    const pages = await openRoom(3, '?demo=playground&data=moons&steps=40&seed=3')
    const [maker, second, third] = pages
    expect(maker.url()).toMatch(/\?demo=playground&data=moons&seed=3&steps=40#key=[\w-]{43}$/)
    await see(maker, 'Ready with 3 ranks')
    await see(second, /^Waiting for .+ to start$/)
    for (const page of pages) {
      const texts = await members(page).allInnerTexts()
      expect(texts.every((text) => /CPU in WebAssembly[\s\S]*software/i.test(text))).toBe(true)
      expect(texts.filter((text) => /\byou\b/.test(text))).toHaveLength(1)
      expect(texts[0]).toMatch(/\bhost\b/)
    }
    expect(await button(second, 'Start').count()).toBe(0)
    await picture(maker, 'lobby-maker')
    await picture(second, 'lobby-joiner')

    await button(maker, 'Start').focus()
    await maker.keyboard.press('Enter')
    await third.locator('#experiment').getByText('tanh: 2–16–16–2').waitFor()
    await Promise.all(pages.map((page) => see(page, 'Finished', 90_000)))

    const [, from, to] = (await lossWords(maker))!.match(/: ([\d.]+) at the first, ([\d.]+) at/)!
    expect(Number(to)).toBeLessThan(0.7 * Number(from))
    const hashes = await Promise.all(
      pages.map((page) => page.getByTestId('param-hash').textContent()),
    )
    expect(hashes[0]).toMatch(/^[0-9a-f]{8,}$/)
    expect(new Set(hashes).size).toBe(1)
    expect(await maker.locator('#ring').textContent()).toContain('MessagePorts')
    await picture(maker, 'finished')

    const { name, tensors, record } = await downloadWeights(maker)
    expect(name).toBe('tabring-tanh-40-steps.safetensors')
    const keys = [0, 2, 4].flatMap((layer) => [`${layer}.bias`, `${layer}.weight`])
    expect([...tensors.keys()].sort()).toEqual(keys)
    expect(record.links.bytesPerMs).toBeGreaterThan(0)
  })

  it('saved in a pause and reloaded, it continues from that step to the bits of a run without a break', async () => {
    const page = await openTab(
      await openContext(),
      `${served.localUrl}?demo=playground&steps=100000`,
    )
    await see(page, 'Alone in the room')
    await button(page, 'Start').click()
    await see(page, 'Training')
    const rate = page.getByLabel('Learning rate')
    await rate.fill('-1')
    await rate.press('Enter')
    await page.getByRole('alert').filter({ hasText: 'Learning rate: ' }).waitFor()
    const pace = page.getByLabel('Pace')
    await pace.fill('90')
    await pace.press('Enter')
    await page
      .locator('.field.live')
      .filter({ hasText: /Pace.*from step \d+/ })
      .waitFor()
    expect(await page.getByText('needs a new start').count()).toBe(1)
    await button(page, 'Pause').click()
    await see(page, 'Paused')
    const step = Number(await page.getByRole('progressbar').getAttribute('aria-valuenow'))
    await button(page, 'Save checkpoint').click()
    const words = `step ${step.toLocaleString('en-US')}`
    await page
      .locator('.save-note')
      .getByText(new RegExp(`^${words} is saved`, 'i'))
      .waitFor()
    expect(await button(page, 'Save checkpoint').isDisabled()).toBe(true)
    await picture(page, 'paused-saved')

    await page.reload()
    await see(page, 'Alone in the room')
    await page.locator('#checkpoints li', { hasText: 'kept' }).getByText(words).waitFor()
    await page.getByRole('button', { name: `Resume from playground tanh, ${words}` }).click()
    await page.getByText(`Start resumes from step ${step},`).waitFor()
    await page.getByText('More settings').click()
    await page.getByLabel('Steps', { exact: true }).fill(String(step + 40))
    await button(page, `Start from step ${step}`).click()
    await see(page, 'Finished', 90_000)
    expect(await page.locator('#summary').textContent()).toContain(
      `Resumed fromstep ${step.toLocaleString('en-US')}`,
    )
    const resumed = await hashOf(page)

    // The next start is from the beginning.
    await button(page, 'Start again').click()
    await seeRun(page, 2)
    expect(await page.locator('#summary').textContent()).not.toContain('Resumed from')
    expect(await hashOf(page)).toBe(resumed)
  })

  it('the others see the experiment as the host changes it, and the next host keeps it', async () => {
    const [maker, second] = await openRoom(2, '')
    const experiment = second.locator('#experiment')
    await experiment.getByText('is choosing the settings. So far:').waitFor()
    await experiment.getByText('mlp: 784–256–10, ReLU').waitFor()
    await maker.getByRole('combobox', { name: 'Experiment' }).selectOption('playground')
    await second.locator('#demo').getByRole('heading', { name: 'Playground' }).waitFor()
    await maker.getByLabel('Seed').fill('5')
    await experiment.locator('div', { hasText: /^Seed5$/ }).waitFor()
    await picture(second, 'lobby-sees')
    const third = await openTab(contexts[0], await invite(second))
    await third.locator('#experiment div', { hasText: /^Seed5$/ }).waitFor()
    await maker.close()
    await see(second, 'Ready with 2 ranks')
    expect(await second.getByLabel('Seed').inputValue()).toBe('5')
    await second.waitForURL((url) => url.search === '?demo=playground&seed=5')
    await second.getByLabel('Seed').fill('6')
    await third.locator('#experiment div', { hasText: /^Seed6$/ }).waitFor()
  })

  it('a maker keeps its room over a reload, hands it over, and removes who may come back', async () => {
    const [maker, second, third] = await openRoom(3, '?seed=3')
    const name = await maker.getByRole('textbox', { name: 'This tab' }).inputValue()
    await maker.reload()
    await see(maker, 'Ready with 3 ranks')
    for (const page of [second, third]) await see(page, `Waiting for ${name} to start`)
    expect(await maker.getByLabel('Seed').inputValue()).toBe('3')

    // The smallest batch that a room of three can share.
    await maker.getByLabel('Batch size').fill('2')
    await see(maker, 'A setting is wrong')
    const wrong = maker.locator('.settings-error')
    expect(await wrong.textContent()).toContain('Batch size: Enter at least 3')
    await picture(maker, 'small-batch')
    await wrong.getByRole('button', { name: 'Go to the field' }).click()
    expect(
      await maker.getByLabel('Batch size').evaluate((one) => one === document.activeElement),
    ).toBe(true)
    await wrong.getByRole('button', { name: 'Set it to 3' }).click()
    await see(maker, 'Ready with 3 ranks')

    await actOn(maker, 1, 'Make host')
    await see(second, 'Ready with 3 ranks')
    await see(maker, /^Waiting for .+ to start$/)
    expect(await second.getByLabel('Batch size').inputValue()).toBe('3')
    expect(await maker.locator('.member-acts').count()).toBe(0)
    await picture(second, 'handed-over')
    await second.reload()
    await see(second, 'Ready with 3 ranks')

    const index = (await members(second).allInnerTexts()).findIndex((text) => text.includes(name))
    await actOn(second, index, 'Remove')
    await maker.locator('.notice[data-kind="removed"]').waitFor()
    await see(second, 'Ready with 2 ranks')
    await picture(maker, 'removed')
    await button(maker, 'Rejoin').click()
    await see(second, 'Ready with 3 ranks')
    await see(maker, /^Waiting for .+ to start$/)
  })

  it('one tab trains alone after its settings are corrected; a reset clears the run and its settings', async () => {
    const page = await openTab(
      await openContext(),
      `${served.localUrl}?epochs=none&steps=5&saves=asked`,
    )
    await see(page, 'A setting is wrong')
    await page.locator('.field .error').getByText('Enter a number, not "none"').waitFor()
    expect(await button(page, 'Start').isDisabled()).toBe(true)
    await picture(page, 'wrong-setting')
    await page.getByLabel('Epochs').fill('2')
    await page.waitForFunction(() => location.search === '?epochs=2&steps=5&saves=asked')
    // The second key must not reach what stands where Start was, and the focus comes back to a button.
    await button(page, 'Start').focus()
    await page.keyboard.press('Enter')
    await page.keyboard.press('Enter')
    await button(page, 'Stop').waitFor()
    await page.evaluate(clickResetAtOnce)
    const dialog = page.getByRole('dialog', { name: 'Reset this page?' })
    await dialog.getByText('You will lose the trained model, which is not saved.').waitFor()
    expect(await button(page, 'Keep').evaluate((one) => one === document.activeElement)).toBe(true)
    await picture(page, 'reset')
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    await see(page, 'Finished')
    const again = button(page, 'Start again')
    await expect.poll(() => again.evaluate((one) => one === document.activeElement)).toBe(true)
    await picture(page, 'finished-alone')
    await button(page, 'Reset').click()
    await dialog.getByRole('button', { name: 'Reset' }).click()
    await see(page, 'Alone in the room')
    expect(new URL(page.url()).search).toBe('')
    expect(await page.getByLabel('Epochs').inputValue()).not.toBe('2')
    expect(await page.locator('#summary').count()).toBe(0)
    expect(await page.locator('.chart[data-kind="loss"]').getAttribute('aria-label')).not.toMatch(
      /at step/,
    )
    const kept = page.locator('#runs tbody tr')
    expect(await kept.count()).toBe(1)
    expect(await button(page, 'Reset').count()).toBe(0)
    await picture(page, 'after-reset')
  })
})

describe('a page that cannot take part says why', () => {
  const hideWebGpu = () =>
    Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined })
  const withoutAdapter = [
    ...browserFlags('software').filter((flag) => !flag.includes('swiftshader')),
    '--disable-gpu',
    '--disable-software-rasterizer',
  ]
  let bare: Browser
  beforeAll(async () => {
    bare = await launchBrowser({ args: withoutAdapter })
  })
  afterAll(() => bare?.close())
  const notice = (page: Page, kind: string) => page.locator(`.notice[data-kind="${kind}"]`)

  it('no WebGPU', async () => {
    const context = await openContext()
    await context.addInitScript(hideWebGpu)
    const page = await openTab(context, `${served.localUrl}?device=webgpu`)
    await notice(page, 'no-webgpu').waitFor()
    await picture(page, 'no-webgpu')
  })

  it('a page without WebGPU trains on the CPU, and says why', async () => {
    // No adapter either, so that a worker that asked for one would fail.
    const context = await openContext({ from: bare })
    await context.addInitScript(hideWebGpu)
    const page = await openTab(context, `${served.localUrl}?steps=3&batchSize=4`)
    await see(page, 'Alone in the room')
    expect(await page.evaluate(() => navigator.gpu)).toBeUndefined()
    const device = members(page).locator('.device')
    expect(await device.innerText()).toMatch(
      /^CPU in WebAssembly, \d+ threads? \(no WebGPU( adapter)?\)$/,
    )
    await button(page, 'Start').click()
    await see(page, 'Finished')
    expect(await page.locator('#summary').textContent()).toContain('Steps3')
    expect(await page.getByTestId('param-hash').textContent()).toMatch(/^[0-9a-f]{8,}$/)
  })

  it('an insecure context', async () => {
    const context = await openContext()
    await context.addInitScript(() =>
      Object.defineProperty(window, 'isSecureContext', { get: () => false }),
    )
    const page = await openTab(context, served.localUrl)
    await notice(page, 'insecure').waitFor()
    const text = await notice(page, 'insecure').textContent()
    expect(text).toContain('npm start -- --host')
    expect(text).toContain(`http://localhost:${served.port}`)
    await picture(page, 'insecure')
  })

  it('a cut or changed link, a wrong setting', async () => {
    const page = await openTab(await openContext(), `${served.localUrl}#room=12ab&key=`)
    await notice(page, 'bad-link').waitFor()
    await picture(page, 'bad-link')
    // A room that is not that of the key; without the seed, one document would have both links.
    await page.goto(`${served.localUrl}?seed=2#room=${'a'.repeat(32)}&key=${'A'.repeat(43)}`)
    await notice(page, 'bad-link').getByText('cut off or changed').waitFor()
    await page.goto(`${served.localUrl}?lanes=1,2`)
    await notice(page, 'bad-setting').waitFor()
    expect(await notice(page, 'bad-setting').textContent()).toContain('lanes must be')
    await picture(page, 'bad-setting')
    await page.goto(`${served.localUrl}?bogus=1&demo=__proto__#nonsense`)
    await page.getByText('In the address, bogus is not a setting.').waitFor()
    expect(await page.locator('.address-notes').textContent()).toContain('#nonsense is not a link')
    await page.locator('.settings-error').getByText('not "__proto__"').waitFor()
    await picture(page, 'address-notes')
  })

  it('no adapter', async () => {
    const url = `${served.localUrl}?device=webgpu`
    const page = await openTab(await openContext({ from: bare }), url)
    await notice(page, 'no-adapter').waitFor()
    await picture(page, 'no-adapter')
  })
})
