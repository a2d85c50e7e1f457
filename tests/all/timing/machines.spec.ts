import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser } from 'playwright'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { buildPages } from '../../../node/own-pages.ts'
import { type Served, serve } from '../../../node/serve.ts'
import { median } from '../../../src/measure/median.ts'
import { drawnSplits, idxFolder } from '../../support/idx-files.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { machinesPage, openMachineTabs, timeSums } from '../../support/machine-tabs.ts'

let built: Awaited<ReturnType<typeof buildPages>>
let folder: string
let served: Served
let browser: Browser
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-machines-'))
  for (const [name, bytes] of Object.entries(idxFolder(drawnSplits({ train: 64, test: 16 }))))
    await writeFile(join(folder, name), bytes)
  built = await buildPages(machinesPage)
  served = await serve({ root: built.root, port: 0, mounts: { '/data/': folder } })
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser.close()
  await served.close()
  await built.remove()
  await rm(folder, { recursive: true })
})

test('two machines far from each other, two tabs on each: what is measured goes inside a machine first, is kept, right and faster', async () => {
  const latencyMs = 8
  const tabs = await openMachineTabs(
    browser,
    `${served.localUrl}${machinesPage}`,
    [2, 2],
    latencyMs,
  )
  const { pages, places } = tabs
  const machines = [0, 0, 1, 1]
  for (const [rank, place] of places.entries()) {
    expect(place.machines).toEqual(machines)
    for (const [other, kind] of Object.entries(place.kinds))
      expect(kind).toBe(machines[rank] === machines[Number(other)] ? 'port' : 'webrtc')
  }

  const trained = await Promise.all(
    pages.map((page) =>
      page.evaluate((config) => globalThis.machineTab.train(config), {
        data: '/data/',
        batchSize: 16,
        steps: 2,
        seed: 5,
      }),
    ),
  )
  const [{ links, paramHash }] = trained
  for (const one of trained) expect(one).toEqual({ links, paramHash, isKept: true })
  expect(links.choice.machines).toEqual(machines)
  // Of this size hops count more than bytes, and so more than how busy this machine is.
  const sizeBytes = 2 ** 18
  expect(links.choice.directMaxBytes).toBeLessThan(sizeBytes)
  expect(links.choice.hierarchicalMaxBytes).toBeGreaterThanOrEqual(sizeBytes)

  for (const bits of await Promise.all(
    pages.map((page) =>
      page.evaluate((length) => globalThis.machineTab.sumBits(length), sizeBytes / 4),
    ),
  ))
    expect(bits).toEqual({ byMachines: true, inRing: false })

  const times = await timeSums(tabs, ['own', 'ring'], sizeBytes, 5)
  const ratios = times.own.map((ms, round) => ms / times.ring[round]!)
  console.log(
    `256 KiB over ${4 * latencyMs} ms: ${median(times.own).toFixed(0)} ms, ring ${median(times.ring).toFixed(0)} ms, ${median(ratios).toFixed(2)}`,
  )
  expect(median(ratios)).toBeLessThan(0.85)
  await Promise.all(pages.map((page) => page.evaluate(() => globalThis.machineTab.leave())))
  for (const context of browser.contexts()) await context.close()
})
