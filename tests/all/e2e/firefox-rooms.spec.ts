import { expect, test } from 'vitest'
import { press, seeText, statusText, textIn, useFirefox } from '../../support/firefox-pages.ts'
import { receivedByRank, start, useLauncherFolder, write } from '../../support/launcher-folder.ts'
import { button, hashOf, invite, see, seeMembers } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// Firefox on lavapipe. firefox.spec.ts has more of it.

const { openRoom } = driveRooms()
const openInFirefox = useFirefox()
useLauncherFolder()

test('a tab of Chromium and one of Firefox train one model, and hold equal parameters', async () => {
  const [maker] = await openRoom(1, '?transport=webrtc&steps=12')
  const guest = await openInFirefox(await invite(maker))
  await press(guest, 'Lab')
  await seeMembers(maker, 2)
  await button(maker, 'Start').click()
  await see(maker, 'Finished')
  await seeText(guest, statusText, /Finished/)
  expect(await textIn(guest, '[data-testid=param-hash]')).toBe(await hashOf(maker))
})

test('tabring run --browser firefox: two ranks of a program train, and print', async () => {
  await write(
    'train.ts',
    "import { compile, tensorType } from 'tabring'; import { env, initProcessGroup } from 'tabring/distributed'; import { Linear } from 'tabring/nn'; import { mseLoss } from 'tabring/nn/functional'; import { DistributedDataParallel } from 'tabring/nn/parallel'; import { SGD } from 'tabring/optim'",
    "await initProcessGroup({ backend: 'webrtc' })",
    'const model = new DistributedDataParallel(new Linear(2, 1))',
    'const optimizer = new SGD(model.parameters(), { lr: 0.5 })',
    'const step = await compile(({ x, y }) => {',
    '  const loss = mseLoss(model.forward(x), y)',
    '  loss.backward()',
    '  optimizer.step()',
    '  return { loss }',
    '}, { x: tensorType([2, 2]), y: tensorType([2, 1]) })',
    'const batch = { x: Float32Array.of(1, 0, 0, 1), y: Float32Array.of(1, 2) }',
    'let last = NaN',
    'for (let i = 0; i < 20; i++) last = (await step.run(batch)).loss[0]',
    "console.warn('careful')",
    'console.log(JSON.stringify({ RANK: env.RANK, loss: String(last), agent: navigator.userAgent }))',
  )
  const run = start('run', ['--browser', 'firefox', '--nproc-per-node=2', '--no-check', 'train.ts'])
  expect(await run.ended, run.received.stderr).toBe(0)
  const [first, second] = receivedByRank(run.received.stdout)
  expect(first.agent).toContain('Firefox/')
  expect(Number(first.loss)).toBeLessThan(0.1)
  expect(second.loss).toBe(first.loss)
  expect(run.received.stderr).toContain('[0]: careful\n')
})
