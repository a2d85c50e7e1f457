import { rmSync } from 'node:fs'
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { findBrowser } from '../../../node/chromium.ts'
import { drawnSplits, idxFolder } from '../../support/idx-files.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { openIn } from '../../support/open-in.ts'
import { repository } from '../../support/repository.ts'
import { cleanUp } from './clean-up.ts'
import { addresses, Networks, onlyPort } from './networks.ts'
import { says, watch } from './processes.ts'
import { secret, startTurn, turnPort } from './turn.ts'

/** Two people on two machines with the training page, which one of the machines serves. */

const port = 29_500

let folder: string
let removeFolder: () => void
let networks: Networks
const browsers: Browser[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-net-page-'))
  removeFolder = cleanUp(() => rmSync(folder, { recursive: true, force: true }))
  networks = new Networks()
})
afterEach(async () => {
  for (const browser of browsers.splice(0)) await browser.close()
})
afterAll(() => {
  networks?.close()
  removeFolder()
})

declare global {
  /** Of each connection that came about, the kinds of its two ends. */
  var paths: Promise<string>[]
}

/** A tab of a browser on one of the machines, whose user has seen the warning about the certificate. */
async function openPage(place: 'alpha' | 'beta'): Promise<Page> {
  const executablePath = networks.programOn(place, findBrowser(), folder)
  const browser = await launchBrowser({ executablePath })
  browsers.push(browser)
  const context = await browser.newContext({ ignoreHTTPSErrors: true })
  await openIn('lab', context)
  await context.addInitScript(() => {
    globalThis.paths = []
    const pathOf = async (connection: RTCPeerConnection) => {
      const entries = new Map<string, Record<string, unknown>>()
      for (const [id, entry] of await connection.getStats()) entries.set(id, entry)
      const transport = [...entries.values()].find(({ type }) => type === 'transport')
      const pair = entries.get(String(transport?.['selectedCandidatePairId']))
      const wordsOf = (end: string) => {
        const { candidateType, address } = entries.get(String(pair?.[end])) ?? {}
        return `${candidateType} ${address}`
      }
      return `${wordsOf('localCandidateId')}, ${wordsOf('remoteCandidateId')}`
    }
    globalThis.RTCPeerConnection = class extends RTCPeerConnection {
      constructor(configuration?: RTCConfiguration) {
        super(configuration)
        // At once: they are closed when the training ends.
        this.addEventListener('connectionstatechange', () => {
          if (this.connectionState === 'connected') globalThis.paths.push(pathOf(this))
        })
      }
    }
  })
  return context.newPage()
}

const see = (page: Page, title: string) =>
  page.locator('.status h2 [role=status]').filter({ hasText: title }).waitFor({ timeout: 60_000 })

test('a firewall between, and a TURN server: npm start on one machine, a tab on each, one model', async () => {
  networks.setRules('drop', ...onlyPort(port))
  const turn = await startTurn(networks, folder)
  const home = join(folder, 'home')
  const data = join(folder, 'digits')
  for (const one of [home, data]) await mkdir(one)
  for (const [name, bytes] of Object.entries(idxFolder(drawnSplits({ train: 256, test: 50 }))))
    await writeFile(join(data, name), bytes)
  const ice = `turn:${addresses.nextToAlpha}:${turnPort}?transport=udp`
  const flags = ['--host', '--port', `${port}`, '--data', data, '--ice-servers', ice]
  const server = watch(
    networks.start(
      'alpha',
      [process.execPath, '--import', 'tsx', join('node', 'start.ts'), ...flags],
      { cwd: repository, env: { HOME: home, TABRING_TURN_SECRET: secret } },
    ),
  )
  const [, address] = await says(server, /on the network (https:\S+)[\s\S]*Ctrl-C/)
  expect(address).toBe(`https://${addresses.alpha}:${port}/`)
  const [maker, other] = await Promise.all([openPage('alpha'), openPage('beta')])
  await maker.goto(`${address}?data=/data/&batchSize=32&steps=6&seed=3`)
  await see(maker, 'Alone in the room')
  await other.goto(await maker.getByLabel('Open this link').inputValue())
  await see(maker, 'Ready with 2 ranks')
  // By TURN too, before the run.
  await maker
    .getByText(/^[\d.]+ ms to (?!the server)/)
    .first()
    .waitFor()
  await maker.getByRole('button', { name: 'Start', exact: true }).click()
  await Promise.all([maker, other].map((page) => see(page, 'Finished')))
  const [first, second] = await Promise.all(
    [maker, other].map((page) => page.getByTestId('param-hash').textContent()),
  )
  expect(first).toMatch(/^[0-9a-f]{8,}$/)
  expect(second).toBe(first)
  const ofBoth = await Promise.all(
    [maker, other].map(async (page) => {
      expect(await page.locator('#ring').textContent()).toContain('WebRTC data channels')
      return page.evaluate(() => Promise.all(globalThis.paths))
    }),
  )
  // The other's relayed address, seen before its candidate has arrived, is of the kind prflx, and until then it is not shown.
  const turnAddress = addresses.nextToAlpha.replaceAll('.', '\\.')
  const byTurn = new RegExp(`\\brelay |\\bprflx (${turnAddress})?$`)
  for (const [page, kinds] of ofBoth.entries()) {
    expect(kinds.length).toBeGreaterThan(0)
    for (const kind of kinds) expect(kind).toMatch(byTurn)
    // Then the other side says that it is its own.
    const isUnseen = kinds.some((kind) => kind.endsWith('prflx '))
    if (isUnseen) expect(ofBoth[1 - page].some((kind) => /^relay /.test(kind))).toBe(true)
  }
  // They tried the direct way, and the firewall was there.
  expect(networks.countPackets()).toBeGreaterThan(0)
  await says(turn, /ALLOCATE processed, success/)
  expect(server.text.stdout + server.text.stderr).not.toContain(secret)
})
