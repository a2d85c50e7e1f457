import { afterAll, beforeAll, test } from 'vitest'
import { ensureBuilt } from '../../../node/build.ts'
import { type Served, serve } from '../../../node/serve.ts'
import { press, seeText, useFirefox } from '../../support/firefox-pages.ts'

/** Every op, variant and case in Firefox on lavapipe. */

let served: Served
beforeAll(async () => {
  served = await serve({ root: await ensureBuilt(), port: 0 })
}, 120_000)
afterAll(() => served?.close())
const open = useFirefox()

test('the self-test passes in Firefox', async () => {
  const page = await open(`${served.localUrl}selftest.html`)
  await press(page, 'Run the self-test')
  await seeText(page, 'main', /checks of \d+ ops: all passed/, 1_500_000)
}, 1_600_000)
