import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { attentionMaps } from '../../../demos/text/attention-maps.ts'
import { task } from '../../../demos/text/demo.ts'
import { drawToken, sample } from '../../../demos/text/queries.ts'
import { beginsUntrained, untrained } from '../../../demos/text/samples.tsx'
import { story } from '../../../demos/text/story.ts'
import {
  blockSize,
  decodeText,
  fillWindow,
  readPrompt,
  readText,
  type TextData,
  unknownIn,
} from '../../../demos/text/tokens.ts'
import { type Line, thinned } from '../../../demos/text/use-samples.tsx'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { type Gpt, gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import type { CopyProgram, ModelCopy, QueryContext } from '../../../src/trainer/settings/task.ts'
import type { Run } from '../../../src/ui/state/run.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { assigned } from '../../support/page-states.ts'
import { startTask } from '../../support/task-ranks.ts'

const utf8 = (text: string) => new TextEncoder().encode(text)

test('a text as tokens: each character has one, the last tenth is held out', () => {
  const { symbols, train, test: heldOut, opening } = readText(story)
  expect(new Set(symbols).size).toBe(symbols.length)
  const all = [...train.tokens, ...heldOut.tokens].map((token) => symbols[token]).join('')
  expect(all).toBe(story)
  expect(heldOut.tokens.length).toBe(Math.ceil(story.length / 10))
  expect(story.startsWith(opening)).toBe(true)
})

test.each([330, 331, 1000, 1234])(
  'windows over %i characters: targets are one character on, all within the text',
  (length) => {
    const text = Array.from({ length }, (_, i) => String.fromCodePoint(97 + ((i * i) % 23))).join(
      '',
    )
    const { train, test: heldOut } = readText(text)
    for (const windows of [train, heldOut]) {
      expect(windows.count).toBeGreaterThan(0)
      const x = new Int32Array(blockSize)
      const y = new Int32Array(blockSize)
      for (let index = 0; index < windows.count; index++) {
        fillWindow(windows, index, x, y)
        const start = index * windows.stride
        expect(x).toEqual(windows.tokens.slice(start, start + blockSize))
        expect(y).toEqual(windows.tokens.slice(start + 1, start + blockSize + 1))
        expect(y).toHaveLength(blockSize)
      }
      // One more would not fit.
      expect(windows.count * windows.stride + blockSize + 1).toBeGreaterThan(windows.tokens.length)
    }
  },
)

test('line ends, accents and signs beyond 16 bits are one character each', () => {
  const { symbols } = readText('e\u0301\r\n\u{1f600}é\r'.repeat(100))
  expect(symbols).toEqual(['\n', 'é', '\u{1f600}'])
  expect(readPrompt('e\u0301\r\n', { symbols })).toEqual([1, 0])
})

test('what is no text to learn is refused, and so are prompts of other characters', () => {
  expect(() => readText('too short')).toThrow('it is too short (9 of at least 330 characters)')
  const many = Array.from({ length: 400 }, (_, i) => String.fromCodePoint(0x4e00 + i)).join('')
  expect(() => readText(many)).toThrow('400 different characters, more than 256')
  expect(() => decodeText(Uint8Array.of(0xff, 0xfe, 0xfd))).toThrow('the file is not UTF-8')
  expect(decodeText(utf8('\ufeffabc'))).toBe('abc')
  const { symbols } = readText(story)
  expect(unknownIn('Once # ## é', symbols)).toEqual(['#', 'é'])
  expect(() => readPrompt('#', { symbols })).toThrow('the text has no "#"')
  expect(() => readPrompt('', { symbols })).toThrow('it is empty')
  expect(readPrompt(story, { symbols })).toHaveLength(blockSize)
})

test('drawing: by probability, colder towards the likeliest', () => {
  const probabilities = Float32Array.of(0.2, 0.5, 0.3)
  const shares = Array.from({ length: 1000 }, (_, i) => i / 1000)
  const counts = (temperature: number) => {
    const drawn = shares.map((share) => drawToken(probabilities, temperature, share))
    return [0, 1, 2].map((token) => drawn.filter((one) => one === token).length)
  }
  for (const [token, count] of counts(1).entries())
    expect(Math.abs(count - 1000 * probabilities[token])).toBeLessThan(3)
  expect(counts(0)).toEqual([0, 1000, 0])
  expect(counts(0.2)[1]).toBeGreaterThan(900)
  expect(counts(5)[0]).toBeGreaterThan(270)
})

test("attention maps, with the model's own values, give what its attention gives", async () => {
  manualSeed(3)
  const [length, heads, width] = [12, 4, 32]
  const model = gpt({ vocabSize: 20, blockSize: 16, layers: 2, heads, width })
  // Larger than the first weights are, so that the maps are not nearly uniform.
  const state = await model.stateDict()
  for (const { data } of Object.values(state))
    for (let i = 0; i < data.length; i++) data[i] = data[i] * 8 + 0.01 * ((i % 7) - 3)
  model.loadStateDict(state)
  const program = await compile(
    ({ tokens }) => {
      const { transformer } = model
      const maps = attentionMaps(model, tokens)
      const positions = transformer.wpe.weight.narrow(0, 0, length)
      let x = transformer.wte.forward(tokens).add(positions).reshape([length, width])
      const outputs = [...transformer.h].flatMap((block, layer) => {
        const normed = block.ln_1.forward(x)
        const values = block.attn.c_attn.forward(normed).narrow(1, 2 * width, width)
        const byHeads = values.reshape([length, heads, width / heads]).permute(1, 0, 2)
        const attended = maps[layer].matmul(byHeads).permute(1, 0, 2).reshape([length, width])
        const ours = block.attn.c_proj.forward(attended)
        const own = block.attn.forward(normed, 1)
        x = block.forward(x, 1)
        return [
          [`ours${layer}`, ours],
          [`own${layer}`, own],
          [`map${layer}`, maps[layer]],
        ] as const
      })
      return Object.fromEntries(outputs)
    },
    { tokens: tensorType([1, length], 'i32') },
    { runtime: new ReferenceRuntime() },
  )
  const tokens = Int32Array.from({ length }, (_, i) => (7 * i + 3) % 20)
  const out = (await program.run({ tokens })) as Record<string, Float32Array>
  program.destroy()
  for (const layer of [0, 1]) {
    const own = out[`own${layer}`]
    const scale = Math.max(...own.map(Math.abs))
    expect(scale).toBeGreaterThan(0.01)
    out[`ours${layer}`].forEach((value, i) => {
      expect(Math.abs(value - own[i])).toBeLessThan(1e-4 * scale)
    })
    const map = out[`map${layer}`]
    // Neither uniform nor attending to later positions.
    expect(Math.max(...map.subarray(length * (length - 1), length * length))).toBeGreaterThan(0.12)
    expect(map[1]).toBe(0)
  }
})

test('untrained line is what the first parameters of seed 0 write when nothing is trained', async () => {
  manualSeed(0)
  const data = readText(story)
  const model = task.model(parseTrainConfig({ demo: 'text' }), data) as Gpt
  const runtime = new ReferenceRuntime()
  const program: ModelCopy['program'] = async (_, types, forward) => {
    const made = await compile((inputs) => forward(model, inputs), types, { runtime })
    const repeat: CopyProgram['repeat'] = async (next) => {
      for (let inputs = next(null); inputs; ) inputs = next(await made.run(inputs))
      made.destroy()
    }
    return { repeat }
  }
  const context = { data, copied: (work) => work({ step: 0, program }) } as QueryContext<TextData>
  const { prompt, text } = untrained
  const answer = await sample(context, { prompt, length: text.length, temperature: 0.6, seed: 1 })
  expect(answer).toEqual({ added: text, step: 0 })
  expect(prompt).toBe(data.opening)
})

test('untrained line is shown when the run began with the model that wrote it', () => {
  const begins = (config: object, part: Partial<Run> = {}) => {
    const { run } = assigned(2)
    const own = parseTrainConfig({ demo: 'text', ...config })
    return beginsUntrained({
      config: null,
      isOthers: false,
      run: { ...run!, config: own, ...part },
    })
  }
  expect(begins({})).toBe(true)
  expect(begins({}, { step: 500 })).toBe(true)
  expect(begins({ seed: 1 })).toBe(false)
  expect(begins({ data: 'given' })).toBe(false)
  expect(begins({ resume: 'latest' })).toBe(false)
  expect(begins({}, { resumed: { step: 500, differences: [] } })).toBe(false)
  expect(begins({}, { joins: true, step: 500 })).toBe(false)
  const own = parseTrainConfig({ demo: 'text' })
  const waiting = (isOthers: boolean) => beginsUntrained({ config: own, run: null, isOthers })
  expect([false, true].map(waiting)).toEqual([true, false])
})

test('of many lines some go, so that the others are spread over the run', () => {
  let lines: readonly Line[] = []
  for (let id = 1; id <= 500; id++) {
    lines = thinned([{ id, prompt: '', text: '', step: id }, ...lines], 20)
    expect(lines.length).toBeLessThanOrEqual(20)
    expect([lines[0].id, lines.at(-1)!.id]).toEqual([id, 1])
  }
  const gaps = lines.slice(1).map(({ id }, i) => lines[i].id - id)
  expect(lines).toHaveLength(20)
  // Equal ones would be 500 / 19.
  expect(Math.max(...gaps)).toBeLessThan(3 * (500 / 19))
})

const startOnText = (size: number, lr: number) =>
  startTask(
    size,
    { demo: 'text', data: 'given', steps: 2, batchSize: 2, bucketCapMb: 1, lr },
    () => new ReferenceRuntime(),
    (rank) => (rank === 0 ? { given: utf8('abc abd. '.repeat(40)) } : {}),
  )

test('queries on two ranks give one text, what the untrained model wrote, one set of probabilities, and maps whose rows sum to 1', async () => {
  const { ranks, close } = await startOnText(2, 0.5)
  await Promise.all(ranks.map(({ end }) => end))
  const answers = await Promise.all(
    ranks.map(async ({ trainer }) => {
      const ask = { temperature: 1, seed: 5 }
      const long = await trainer.query('sample', { prompt: 'abc', length: 3, ...ask })
      const untrained = { prompt: 'abc', length: 3, ...ask, untrained: true }
      return {
        long,
        first: await trainer.query('sample', untrained),
        next: await trainer.query('probabilities', { prompt: 'abc' }),
        maps: await trainer.query('attention', { prompt: 'abc a' }),
        vocabulary: await trainer.query('vocabulary', undefined),
      }
    }),
  )
  expect(answers[1]).toEqual(answers[0])
  const [{ long, first, next, maps, vocabulary }] = answers
  const still = await startOnText(1, 1e-9)
  await still.ranks[0].end
  const same = await still.ranks[0].trainer.query('sample', {
    prompt: 'abc',
    length: 3,
    temperature: 1,
    seed: 5,
  })
  still.close()
  expect(first).toEqual({ added: same.added, step: 0 })
  expect(long.added).not.toBe(first.added)
  expect(String(long.added)).toMatch(/^[abcd. ]{3}$/)
  const values = next.probabilities as Float32Array
  expect(next.characters).toHaveLength(6)
  expect(values.reduce((sum, p) => sum + p, 0)).toBeCloseTo(1, 5)
  expect([...values]).toEqual([...values].sort((a, b) => b - a))
  expect(maps).toMatchObject({ layers: 2, heads: 4, characters: ['a', 'b', 'c', ' ', 'a'] })
  const weights = maps.weights as Float32Array
  expect(weights).toHaveLength(2 * 4 * 5 * 5)
  for (let row = 0; row < weights.length / 5; row++) {
    const own = weights.subarray(5 * row, 5 * row + 5)
    expect(own.reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 5)
    expect([...own.subarray((row % 5) + 1)].every((weight) => weight === 0)).toBe(true)
  }
  expect(vocabulary).toMatchObject({ length: 360, opening: 'abc abd.' })
  const asked: [string, object, string][] = [
    ['sample', { prompt: '#', length: 1 }, 'the text has no "#"'],
    ['sample', { prompt: 'a', length: 999 }, 'length: 999 is not a whole number from 1 to 256'],
    ['sample', { prompt: 'a', length: 1, temperature: -1 }, 'temperature: -1 is not a number'],
    ['attention', {}, 'prompt: undefined is no text'],
  ]
  for (const [name, input, text] of asked)
    await expect(ranks[0].trainer.query(name, input)).rejects.toThrow(text)
  close()
}, 60_000)
