import { afterAll, beforeAll, expect, test } from 'vitest'
import { ensureBuilt } from '../../../node/build.ts'
import { type Served, serve } from '../../../node/serve.ts'
import { ops } from '../../../src/kernels/index.ts'
import { press, seeText, textIn, useFirefox } from '../../support/firefox-pages.ts'

/** Every op, variant and case in Firefox on lavapipe: 53 s on two cores, 2026-11-28. */

let served: Served
beforeAll(async () => {
  served = await serve({ root: await ensureBuilt(), port: 0 })
}, 120_000)
afterAll(() => served?.close())
const open = useFirefox()

test('the self-test passes in Firefox', async () => {
  const page = await open(`${served.localUrl}selftest.html`)
  await press(page, 'Run the self-test')
  await seeText(page, 'main', /checks of \d+ ops: /, 500_000)
  const passed = new RegExp(`[1-9]\\d{2,} checks of ${ops.length} ops: all passed`)
  expect(await textIn(page, 'main')).toMatch(passed)
}, 600_000)
