import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ensureBuilt } from '../../node/build.ts'
import { lanAddresses, ownCertificate } from '../../node/certificate.ts'
import { browserFlags } from '../../node/chromium.ts'
import { serve } from '../../node/serve.ts'
import { readSafetensors } from '../../src/data/safetensors.ts'
import { smallFolder } from '../support/idx-files.ts'
import { launchBrowser } from '../support/launch-browser.ts'
import {
  button,
  drivePages,
  hashOf,
  invite,
  members,
  photograph,
  see,
  seeMembers,
  seeRun,
} from '../support/page-driver.ts'

/** The built page, driven as people do. */
/** Certificates and data of these tests. */
let folder: string
const driver = drivePages()
const { served, contexts, openContext } = driver
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-page-'))
})
afterAll(async () => {
  if (folder) await rm(folder, { recursive: true })
})

const openTab = (context: BrowserContext, url: string) => driver.openTab(url, context)
/** Opens what the maker can do with a member, and does one of it. */
const actOn = async (page: Page, index: number, act: string) => {
  const member = members(page).nth(index)
  await member.locator('.member-acts summary').click()
  await member.getByRole('button', { name: act }).click()
}
const lossWords = (page: Page) =>
  page.locator('.chart[data-kind="loss"]').getAttribute('aria-label')
const picture = (page: Page, name: string) =>
  photograph(page, name, {
    looks: [
      { width: 1400, colorScheme: 'light' },
      { width: 390, colorScheme: 'light' },
    ],
  })

/** A room of `count` tabs: in one browser profile, or each in its own. */
async function openRoom(count: number, query: string, isShared = true): Promise<Page[]> {
  const first = await openContext()
  const maker = await openTab(first, `${served.localUrl}${query}`)
  await see(maker, 'Alone in the room')
  const link = await invite(maker)
  const pages = [maker]
  for (let i = 1; i < count; i++) {
    pages.push(await openTab(isShared ? first : await openContext(), link))
    await seeMembers(maker, i + 1)
  }
  await Promise.all(pages.map((page) => seeMembers(page, count)))
  return pages
}

/** A profile as behind a firewall: it finds no address to connect from. */
async function openBlocked(): Promise<BrowserContext> {
  const blocked = await openContext()
  await blocked.addInitScript(() => {
    const Original = RTCPeerConnection
    globalThis.RTCPeerConnection = class extends Original {
      constructor(given?: RTCConfiguration) {
        super({ ...given, iceTransportPolicy: 'relay' })
      }
    }
  })
  return blocked
}

// Three software adapters on two cores take their time.
describe('a room', { timeout: 240_000 }, () => {
  it('three tabs of one browser join by the link, train over ports, agree, and train again', async () => {
    const pages = await openRoom(3, '?epochs=1&steps=24&seed=3')
    const [maker, second, third] = pages
    expect(maker.url()).toMatch(/\?epochs=1&seed=3&steps=24#room=[0-9a-f]{32}&key=[\w-]{43}$/)
    await see(maker, 'Ready with 3 ranks')
    await see(second, /^Waiting for .+ to start$/)
    for (const page of pages) {
      const texts = await members(page).allInnerTexts()
      expect(texts.every((text) => /swiftshader[\s\S]*software/i.test(text))).toBe(true)
      expect(texts.filter((text) => /\byou\b/.test(text))).toHaveLength(1)
      expect(texts[0]).toMatch(/\bmaker\b/)
    }
    expect(await button(second, 'Start').count()).toBe(0)
    await picture(maker, 'lobby-maker')
    await picture(second, 'lobby-joiner')

    await button(maker, 'Start').focus()
    await maker.keyboard.press('Enter')
    await third.getByRole('progressbar').waitFor()
    await third.locator('#experiment').getByText('mlp: 784–256–10, ReLU').waitFor()
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

    const weights = async () => {
      const downloaded = maker.waitForEvent('download')
      await maker.getByRole('button', { name: 'Download weights' }).click()
      const download = await downloaded
      expect(download.suggestedFilename()).toBe('tabring-mlp-24-steps.safetensors')
      const { tensors, metadata } = readSafetensors(
        new Uint8Array(await readFile(await download.path())),
      )
      return { tensors, record: JSON.parse(metadata['tabring.record']) }
    }
    const { tensors, record } = await weights()
    expect([...tensors.keys()].sort()).toEqual(['0.bias', '0.weight', '2.bias', '2.weight'])
    expect(record.links.bytesPerMs).toBeGreaterThan(0)

    await button(maker, 'Start again').click()
    await maker.locator('#summary').getByText('Run 2').waitFor({ timeout: 90_000 })
    await see(third, 'Finished', 90_000)
    // Measured once for these three; another rate might have given other buckets, and so other sums.
    expect((await weights()).record.links).toEqual(record.links)
    // Equal settings and seeds: the same bits again.
    expect(await maker.getByTestId('param-hash').textContent()).toBe(hashes[0])
  })

  it('tabs that share nothing but the network train over WebRTC; the link carries the choice', async () => {
    const pages = await openRoom(2, '?transport=webrtc&steps=6&model=cnn', false)
    expect(await invite(pages[0])).toContain('/?transport=webrtc#room=')
    await button(pages[0], 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Finished', 110_000)))
    const hashes = await Promise.all(
      pages.map((page) => page.getByTestId('param-hash').textContent()),
    )
    expect(new Set(hashes).size).toBe(1)
    expect(await pages[1].locator('#ring').textContent()).toContain('WebRTC data channels')
    expect(await pages[1].locator('#summary').textContent()).toMatch(/[\d.]+ [KM]iB/)
  })

  it('falls back to the server where WebRTC brings no connection about, and shows which way a link goes', async () => {
    const relaying = await serve({
      root: await ensureBuilt(),
      port: 0,
      signaling: { relay: true },
    })
    try {
      const maker = await openTab(
        await openContext(),
        `${relaying.localUrl}?transport=fallback&steps=6`,
      )
      await see(maker, 'Alone in the room')
      const link = await invite(maker)
      expect(link).toContain('/?transport=fallback#room=')
      const second = await openTab(await openBlocked(), link)
      await seeMembers(maker, 2)
      const ring = (page: Page) => page.locator('#ring').textContent()
      expect(await ring(maker)).toContain('WebRTC, else through the signaling server.')
      await button(maker, 'Start').click()
      await Promise.all([maker, second].map((page) => see(page, 'Finished', 110_000)))
      for (const page of [maker, second]) {
        expect(await ring(page)).toContain('Through the signaling server, sealed end to end.')
        expect(await page.locator('#ring .edge[data-kind=relay]').count()).toBe(2)
        expect(await page.locator('#summary').textContent()).toMatch(/[\d.]+ [KM]iB/)
      }
    } finally {
      await relaying.close()
    }
  })

  it('who cannot be reached is named before Start, and again when it failed; the maker starts without it', async () => {
    const first = await openContext()
    const query = '?demo=playground&transport=webrtc&steps=4'
    const maker = await openTab(first, `${served.localUrl}${query}`)
    await see(maker, 'Alone in the room')
    const link = await invite(maker)
    const blocked = await openTab(await openBlocked(), link)
    await seeMembers(maker, 2)
    const third = await openTab(first, link)
    await Promise.all([maker, blocked, third].map((page) => seeMembers(page, 3)))
    const name = await members(maker).nth(1).locator('strong').textContent()
    await see(maker, `${name} cannot be reached`)
    await see(blocked, / and .+ cannot be reached$/)
    await members(maker).nth(2).getByText(`no way to ${name}`).waitFor()
    await members(maker)
      .nth(2)
      .getByText(/^[\d.]+ ms to /)
      .waitFor()
    await picture(maker, 'lobby-unreachable')

    await button(maker, 'Start').click()
    await maker.getByText('The error itself').waitFor()
    // Whoever noticed first is told: that may be two of the others.
    await see(maker, /cannot be reached$|cannot reach each other$/)
    await button(maker, `Start without ${name}`).click()
    await Promise.all([maker, third].map((page) => see(page, 'Finished', 60_000)))
    await blocked.locator('.notice[data-kind="removed"]').waitFor()
    await members(third)
      .nth(0)
      .getByText(/^[\d.]+ ms to /)
      .waitFor()
    expect(await members(third).count()).toBe(2)
  })

  it('saved in a pause and reloaded, it goes on from that step to the bits of a run without a break', async () => {
    const page = await openTab(
      await openContext(),
      `${served.localUrl}?demo=playground&steps=100000`,
    )
    await see(page, 'Alone in the room')
    await button(page, 'Start').click()
    await see(page, 'Training')
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
    await page.getByRole('button', { name: `Go on from playground tanh, ${words}` }).click()
    await page.getByText(`Start goes on from step ${step},`).waitFor()
    await page.getByText('More settings').click()
    await page.getByLabel('Steps', { exact: true }).fill(String(step + 40))
    await button(page, `Start from step ${step}`).click()
    await see(page, 'Finished', 90_000)
    expect(await page.locator('#summary').textContent()).toContain(
      `Went on fromstep ${step.toLocaleString('en-US')}`,
    )
    const resumed = await hashOf(page)

    // The next start is from the beginning.
    await button(page, 'Start again').click()
    await seeRun(page, 2)
    expect(await page.locator('#summary').textContent()).not.toContain('Went on from')
    expect(await hashOf(page)).toBe(resumed)
  })

  it('guests can neither pause nor stop; the maker removes one in mid-run, and stops the run', async () => {
    const pages = await openRoom(3, '?steps=100000')
    const [maker, second, third] = pages
    await button(maker, 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Training', 60_000)))
    await maker.locator('.chart[aria-label*="at step"]').waitFor()
    await picture(maker, 'training')
    expect(await third.locator('.status').textContent()).toMatch(
      /Only .+ can pause or stop the run/,
    )
    expect(await button(third, 'Stop').count()).toBe(0)

    await actOn(maker, 2, 'Remove and end the run')
    const rest = [maker, second]
    await Promise.all(rest.map((page) => see(page, /^Rank 2 \(.+\) was removed$/)))
    await third.locator('.notice[data-kind="removed"]').waitFor()
    await picture(maker, 'member-removed')

    await button(maker, 'Start again').click()
    await Promise.all(rest.map((page) => see(page, 'Training', 60_000)))
    await button(maker, 'Stop').click()
    await Promise.all(rest.map((page) => see(page, 'Stopped')))
    // It was saved at the step that it came to.
    const stopped = (await maker.locator('.status').textContent())!
    const [, at] = /ended the run at step (\d+)\./.exec(stopped) ?? []
    expect(stopped).toContain(`Go on from step ${at},`)
    await picture(maker, 'stopped')
  })

  it('the others see the experiment as its maker changes it; the next maker goes on with it', async () => {
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
    expect(new URL(second.url()).search).toBe('?demo=playground&seed=5')
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
    expect(await wrong.textContent()).toContain('Batch size: expected at least 3')
    await picture(maker, 'small-batch')
    await wrong.getByRole('button', { name: 'Go to the field' }).click()
    expect(
      await maker.getByLabel('Batch size').evaluate((one) => one === document.activeElement),
    ).toBe(true)
    await wrong.getByRole('button', { name: 'Set it to 3' }).click()
    await see(maker, 'Ready with 3 ranks')

    await actOn(maker, 1, 'Make it the maker')
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

  it('one tab trains alone, after its settings have been put right; a reset begins anew', async () => {
    const page = await openTab(
      await openContext(),
      `${served.localUrl}?epochs=none&steps=5&saves=asked`,
    )
    await see(page, 'A setting is wrong')
    await page.locator('.field .error').getByText('expected a number, got none').waitFor()
    expect(await button(page, 'Start').isDisabled()).toBe(true)
    await picture(page, 'wrong-setting')
    await page.getByLabel('Epochs').fill('2')
    await page.waitForFunction(() => location.search === '?epochs=2&steps=5&saves=asked')
    // The second key must not reach what stands where Start was, and the focus comes back to a button.
    await button(page, 'Start').focus()
    await page.keyboard.press('Enter')
    await page.keyboard.press('Enter')
    await see(page, 'Finished', 60_000)
    const again = button(page, 'Start again')
    await expect.poll(() => again.evaluate((one) => one === document.activeElement)).toBe(true)
    await picture(page, 'finished-alone')

    const dialog = page.getByRole('dialog', { name: 'Reset this page?' })
    await button(page, 'Reset').focus()
    await page.keyboard.press('Enter')
    await dialog.getByText('You will lose the trained model, which is not saved.').waitFor()
    expect(await button(page, 'Keep').evaluate((one) => one === document.activeElement)).toBe(true)
    await picture(page, 'reset')
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    await see(page, 'Finished')
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

  it('trains on the data folder that the server was given', async () => {
    for (const [name, bytes] of Object.entries(smallFolder(200, 50))) {
      await writeFile(join(folder, name), bytes)
    }
    const own = await serve({ root: await ensureBuilt(), port: 0, mounts: { '/data/': folder } })
    try {
      const page = await openTab(await openContext(), `${own.localUrl}?steps=5&batchSize=32`)
      await see(page, 'Alone in the room')
      await page.getByLabel('Data', { exact: true }).selectOption('IDX files at an address…')
      expect(await page.getByLabel('Address of the data').inputValue()).toBe('/data/')
      await button(page, 'Start').click()
      await see(page, 'Finished', 60_000)
      expect(await page.locator('#summary').textContent()).toContain('Steps5')
      expect(new URL(page.url()).searchParams.get('data')).toBe('/data/')
    } finally {
      await own.close()
    }
  })

  it('served to other machines, a page opened as localhost gives out a link that they can open', async () => {
    expect(lanAddresses(), 'this machine is in no network: connect it to one').not.toEqual([])
    const root = await ensureBuilt()
    const certificate = await ownCertificate({ folders: [join(folder, '.tabring')] })
    const own = await serve({ root, port: 0, host: true, certificate })
    try {
      const maker = await openTab(await openContext(), own.localUrl)
      await see(maker, 'Alone in the room')
      await expect.poll(() => invite(maker)).toContain(own.lanUrls[0])
      const room = await maker.locator('#room').textContent()
      expect(room).toContain('or on other machines')
      expect(room).not.toContain('npm start')
      await picture(maker, 'host')
      const here = await maker.getByText('Open another tab here').getAttribute('href')
      expect(here).toContain(own.localUrl)
      const other = await openTab(await openContext(), await invite(maker))
      await Promise.all([maker, other].map((page) => seeMembers(page, 2)))
      expect(await invite(other)).toBe(await invite(maker))
    } finally {
      await own.close()
    }
  })

  it('a page that Back brings back enters its room anew', async () => {
    const [maker] = await openRoom(1, '')
    const link = maker.url()
    // What a browser with a back-forward cache does; headless Chromium keeps no page that has a socket.
    await maker.evaluate(() => {
      window.dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))
      Object.assign(window, { isOld: true })
    })
    await Promise.all([
      maker.waitForEvent('load'),
      maker.evaluate(() =>
        window.dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })),
      ),
    ])
    await see(maker, 'Alone in the room')
    expect(await maker.evaluate(() => 'isOld' in window)).toBe(false)
    expect(maker.url()).toBe(link)
  })

  it('a browser that blocks storage only forgets the name', async () => {
    const context = await openContext()
    await context.addInitScript(() =>
      Object.defineProperty(window, 'sessionStorage', {
        get: () => {
          throw new DOMException('denied', 'SecurityError')
        },
      }),
    )
    const page = await openTab(context, served.localUrl)
    await see(page, 'Alone in the room')
    const name = page.getByRole('textbox', { name: 'This tab' })
    await name.fill('Ada')
    await name.press('Enter')
    await members(page).filter({ hasText: 'Ada' }).waitFor()
  })

  it('a tab whose worker ends while nothing runs says so and leaves the room', async () => {
    const [maker, second] = await openRoom(2, '')
    await second.workers()[0].evaluate(() => self.close())
    await second.locator('.notice[data-kind="worker"]').waitFor()
    await see(maker, 'Alone in the room')
  })

  it('the server goes away: it is said, and nothing can be started', async () => {
    const own = await serve({ root: await ensureBuilt(), port: 0 })
    const page = await openTab(await openContext(), own.localUrl)
    await see(page, 'Alone in the room')
    // What measures the device comes from the server too, some time after the page.
    await members(page).getByText('GFLOP/s').waitFor()
    await own.close()
    await see(page, 'The signaling server is gone')
    expect(await button(page, 'Start').count()).toBe(0)
    await button(page, 'Reload').waitFor()
    await picture(page, 'server-lost')
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
  const notice = (page: Page, kind: string) => page.locator(`.notice[data-kind="${kind}"]`)

  it('no WebGPU', async () => {
    const context = await openContext()
    await context.addInitScript(hideWebGpu)
    const page = await openTab(context, served.localUrl)
    await notice(page, 'no-webgpu').waitFor()
    await picture(page, 'no-webgpu')
  })

  it('a page without WebGPU trains on the CPU when its person says so', async () => {
    // No adapter either, so that a worker that asked for one would fail.
    const bare = await launchBrowser({ args: withoutAdapter })
    try {
      const context = await openContext({ from: bare })
      await context.addInitScript(hideWebGpu)
      const page = await openTab(context, `${served.localUrl}?steps=3&batchSize=4`)
      await notice(page, 'no-webgpu').waitFor()
      await button(page, 'Compute on the CPU (very slow)').click()
      await see(page, 'Alone in the room')
      expect(await page.evaluate(() => navigator.gpu)).toBeUndefined()
      expect(await members(page).innerText()).toContain('tabring · cpu')
      await button(page, 'Start').click()
      await see(page, 'Finished')
      expect(await page.locator('#summary').textContent()).toContain('Steps3')
      expect(await page.getByTestId('param-hash').textContent()).toMatch(/^[0-9a-f]{8,}$/)
    } finally {
      await bare.close()
      contexts.pop()
    }
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

  it('a cut link', async () => {
    const page = await openTab(await openContext(), `${served.localUrl}#room=12ab&key=`)
    await notice(page, 'bad-link').waitFor()
    await picture(page, 'bad-link')
    await page.goto(`${served.localUrl}?lanes=1,2`)
    await notice(page, 'bad-setting').waitFor()
    expect(await notice(page, 'bad-setting').textContent()).toContain('lanes must be')
    await picture(page, 'bad-setting')
  })

  it('a wrong key', async () => {
    const [maker] = await openRoom(1, '')
    const link = (await invite(maker)).replace(/key=.{10}/, 'key=AAAAAAAAAA')
    const page = await openTab(await openContext(), link)
    await notice(page, 'refused').waitFor()
    expect(await notice(page, 'refused').textContent()).toContain('not the key of the room')
  })

  it('no adapter', async () => {
    const poor = await launchBrowser({ args: withoutAdapter })
    try {
      const page = await openTab(await openContext({ from: poor }), served.localUrl)
      await notice(page, 'no-adapter').waitFor()
      await picture(page, 'no-adapter')
    } finally {
      await poor.close()
      contexts.pop()
    }
  })
})
