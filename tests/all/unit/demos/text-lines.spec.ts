import { expect, test } from 'vitest'
import { drawToken } from '../../../../demos/text/queries.ts'
import { blockSize, readPrompt, readText } from '../../../../demos/text/tokens.ts'
import { compile } from '../../../../src/graph/compile/compile.ts'
import { softmax } from '../../../../src/graph/functions/activations.ts'
import { ReferenceRuntime } from '../../../../src/graph/memory/runtime.ts'
import { gpt } from '../../../../src/nn/gpt.ts'
import { RandomStream } from '../../../../src/util/random.ts'
import { tensorType } from '../../../../src/util/shape.ts'
import { startTask } from '../../../support/task-ranks.ts'

const utf8 = (text: string) => new TextEncoder().encode(text)

test('a line written during training is of one step, and equals what the model of that step gives', async () => {
  const text = 'abc abd. '.repeat(40)
  const config = { demo: 'text', data: 'given', batchSize: 2, steps: 14, lr: 0.01 } as const
  const given = () => ({ given: utf8(text) })
  const open = () => new ReferenceRuntime()
  const { ranks, close } = await startTask(1, config, open, given)
  const [{ trainer, until, end, events }] = ranks
  const asked = { prompt: 'abc', length: 8, seed: 3 }
  const lines: { step: number; added: string; temperature: number }[] = []
  const stepsNow = () => events.filter(({ event }) => event === 'step').length
  await until('step')
  const grewBy: number[] = []
  for (const temperature of [0.8, 0]) {
    const before = stepsNow()
    const { added, step } = await trainer.query('sample', { ...asked, temperature })
    lines.push({ added: String(added), step: Number(step), temperature })
    grewBy.push(stepsNow() - before)
  }
  const { paramHash } = await end
  close()
  // Steps were taken while it was written, and the run had the bits of one that nobody looked at.
  expect(Math.max(...grewBy)).toBeGreaterThan(1)
  const quiet = await startTask(1, config, open, given)
  expect((await quiet.ranks[0].end).paramHash).toBe(paramHash)
  quiet.close()

  const { symbols } = readText(text)
  for (const { step, added, temperature } of lines) {
    const whole = await startTask(1, { ...config, steps: step }, open, given)
    await whole.ranks[0].end
    const state = await whole.ranks[0].trainer.stateDict()
    const model = gpt({ vocabSize: symbols.length, blockSize, layers: 2, heads: 4, width: 64 })
    model.loadStateDict(state)
    model.eval()
    // One prediction at a time, from the last characters alone: no window that is filled up.
    let written = asked.prompt
    while (written.length < asked.prompt.length + asked.length) {
      const tokens = Int32Array.from(readPrompt(written, { symbols }))
      const program = await compile(
        ({ x }) => ({ next: softmax(model.forward(x), 2).select(1, tokens.length - 1) }),
        { x: tensorType([1, tokens.length], 'i32') },
        { runtime: open() },
      )
      const next = (await program.run({ x: tokens })).next as Float32Array
      program.destroy()
      const share = new RandomStream(asked.seed, written.length, 'general').unit()
      written += symbols[drawToken(next, temperature, share)]
    }
    whole.close()
    expect(added, `step ${step}`).toBe(written.slice(asked.prompt.length))
  }
  expect(lines[1].step).toBeGreaterThan(lines[0].step)
}, 60_000)
