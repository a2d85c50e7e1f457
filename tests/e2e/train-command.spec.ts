import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { readSafetensors } from '../../src/data/safetensors.ts'
import { readWithSpeedscope } from '../support/speedscope.ts'
import { useTrainFolder } from '../support/train-folder.ts'
import { mlpBytes, trainWithJson } from '../support/train-json.ts'

/** `npm run train` as a process: tabs, links, weights and the exit code, as its user sees them. */

const folder = useTrainFolder()

test('three tabs train on drawn digits, report each step, and write the weights', async () => {
  const out = join(folder.path, 'weights.safetensors')
  const trace = join(folder.path, 'spans.json')
  const steps = 10
  const flags = ['--nproc-per-node', '3', '--steps', `${steps}`, '--seed', '7', '--out', out]
  // By ports more is measured, and the first parameters are sent to both others at once.
  const links = ['--transport', 'webrtc', '--bucket-cap-mb', '0.2']
  const { losses, done } = await trainWithJson(folder, ...flags, ...links, '--trace', trace)
  expect(losses).toHaveLength(steps)
  expect(losses[steps - 1]).toBeLessThan(losses[0] - 0.2)
  expect(done.worldSize).toBe(3)
  expect(done.paramHashes).toHaveLength(3)
  expect(done.linksPerRank).toEqual(Array(3).fill(['webrtc', 'webrtc']))
  expect(done.samplesPerRank).toEqual([22 * steps, 21 * steps, 21 * steps])
  expect(done.bytesSentPerRank).toHaveLength(3)
  // The steps' gradients and parameters; before them the first parameters, and what measuring the links takes: up to 16 MiB, where they are fast.
  const stepBytes = ((2 * 2) / 3) * mlpBytes * steps
  for (const bytes of done.bytesSentPerRank) {
    expect(bytes).toBeGreaterThan(stepBytes)
    expect(bytes).toBeLessThan(1.01 * stepBytes + mlpBytes + 16 * 2 ** 20)
  }
  const { tensors } = readSafetensors(new Uint8Array(await readFile(out)))
  expect([...tensors.keys()].sort()).toEqual(['0.bias', '0.weight', '2.bias', '2.weight'])
  const { traceEvents } = JSON.parse(await readFile(trace, 'utf8'))
  const { profiles, frames, complaints } = await readWithSpeedscope(trace)
  expect(complaints).toEqual([])
  for (const rank of [0, 1, 2]) {
    for (const track of ['steps', 'kernels', 'collectives']) {
      const own = profiles.filter(({ name }) =>
        name.startsWith(`rank ${rank} (pid ${rank}), ${track}`),
      )
      const events = own.flatMap((profile) => profile.events)
      const spans = events.filter(({ type }) => type === 'O').map(({ frame }) => frames[frame].name)
      const wanted = { steps: ` run ${steps}`, kernels: 'matmul', collectives: 'reduceScatter 1' }[
        track
      ]!
      expect(
        spans.some((name) => name.includes(wanted)),
        `${rank} ${track}`,
      ).toBe(true)
    }
  }
  const opened = profiles.flatMap(({ events }) => events).filter(({ type }) => type === 'O')
  expect(opened).toHaveLength(traceEvents.filter(({ ph }: { ph: string }) => ph === 'X').length)
  expect(await readdir(folder.path)).toEqual(['spans.json', 'weights.safetensors'])
}, 180_000)

test('SIGTERM in mid-run ends with 143 and leaves nothing behind', async () => {
  const out = join(folder.path, 'weights.safetensors')
  const { child, received } = folder.start(
    {},
    ...['--json', '--adapter', 'software', '--nproc-per-node', '2', '--out', out, '--debug', '2'],
  )
  while (!received.stdout.includes('"event":"step"')) await once(child.stdout, 'data')
  child.kill('SIGTERM')
  const [code] = await once(child, 'close')
  expect(code).toBe(143)
  expect(received.stderr).not.toContain('Error')
  expect(received.stderr).toContain('train: interrupted; no weights were saved\n')
  expect(received.stderr).toContain('tabring room: epoch 1: linked to rank 0 by port\n')
  expect(received.stderr).toMatch(/rank 1: tabring kernels: program \d, run 1, means of 1 runs:\n/)
  expect(await readdir(folder.path)).toEqual([])
}, 180_000)
