import { expect, test } from 'vitest'
import { GradScaler } from '../../../src/entries/amp.ts'
import { allReduce, broadcast, ReduceOp } from '../../../src/entries/distributed.ts'
import { compile, manualSeed, type Tensor, tensorType } from '../../../src/entries/index.ts'
import { allreduceHook, DistributedDataParallel } from '../../../src/entries/nn/parallel.ts'
import { clipGradNorm, Linear, type Parameter, Sequential } from '../../../src/entries/nn.ts'
import * as lrScheduler from '../../../src/entries/optim/lr-scheduler.ts'
import { AdamW, type Optimizer, SGD } from '../../../src/entries/optim.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { areUnlike, SettingsConsistency } from '../../../src/graph/trace/settings-check.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { ringOf } from '../../support/process-ring.ts'

const runtime = new ReferenceRuntime()
const types = { x: tensorType([4, 16]) }
const batch = { x: Float32Array.from({ length: 64 }, (_, i) => Math.sin(i)) }

interface Options {
  readonly optimizer: (parameters: readonly Parameter[], rank: number) => unknown
  readonly clip?: (rank: number) => number
  readonly prepare?: (ddp: DistributedDataParallel) => void
}

/** Ranks of a model in several buckets, and how compiling its step ended on each. */
async function ranksOf(size: number, { optimizer: make, clip, prepare }: Options) {
  const groups = await ringOf(size)
  const ranks = groups.map((group, rank) => {
    manualSeed(1)
    const model = new Sequential(new Linear(16, 32), new Linear(32, 8))
    const ddp = new DistributedDataParallel(model, { processGroup: group, bucketCapMb: 0.001 })
    prepare?.(ddp)
    const optimizer = make(ddp.parameters(), rank) as Optimizer
    const step = ({ x }: Record<string, Tensor>) => {
      const loss = ddp.forward(x).mean()
      optimizer.zeroGrad()
      loss.backward()
      if (clip) clipGradNorm(ddp.parameters(), () => clip(rank))
      optimizer.step()
      return { loss }
    }
    return { group, model, ddp, optimizer, program: compile(step, types, { runtime }) }
  })
  const weights = () =>
    Promise.all(
      ranks.map(async ({ model }) =>
        (await Promise.all(model.parameters().map((one) => one.read()))).flatMap((own) => [...own]),
      ),
    )
  /** What a step on all ranks ends with: the loss or the error. */
  const step = () =>
    Promise.all(
      ranks.map(async ({ program }) => {
        try {
          return (await (await program).run(batch)).loss[0]
        } catch (error) {
          return error as Error & { code: string }
        }
      }),
    )
  const end = () => {
    for (const { group } of ranks) group.destroy()
  }
  return { ranks, step, weights, end }
}

const messages = (outcomes: readonly unknown[]) =>
  outcomes.map((one) => (one instanceof Error ? one.message : one))

test.each<[string, Options['prepare']]>([
  ['without a hook', undefined],
  ['with a hook', (ddp) => ddp.registerCommHook(null, allreduceHook)],
])(
  'a learning rate that differs ends the step on all ranks, %s; with equal ones they continue',
  async (_, prepare) => {
    const { ranks, step, weights, end } = await ranksOf(3, {
      optimizer: (parameters) => new SGD(parameters, { lr: 0.1, momentum: 0.9 }),
      ...(prepare && { prepare }),
    })
    for (const loss of await step()) expect(loss).toBeTypeOf('number')
    const before = await weights()
    // Each rank's own validation loss: it falls on one and stays on the others.
    for (const [rank, { optimizer }] of ranks.entries()) {
      const scheduler = new lrScheduler.ReduceLROnPlateau(optimizer, { patience: 0, factor: 0.001 })
      for (const loss of rank === 1 ? [3, 3] : [3, 2]) scheduler.step(loss)
    }
    const outcomes = await step()
    for (const outcome of outcomes) expect(outcome).toMatchObject({ code: 'peer.mismatch' })
    expect(new Set(messages(outcomes)).size).toBe(1)
    expect(messages(outcomes)[0]).toMatch(
      /^optimizer\.step: ranks disagree about the optimizer's settings: lr 0\.1 \(SGD, group 0\) on ranks 0 and 2, lr 0\.0001 \(SGD, group 0\) on rank 1\. /,
    )
    // Nothing was updated, on no rank, and the group is as it was.
    expect(await weights()).toEqual(before)
    for (const { optimizer } of ranks) optimizer.paramGroups[0].lr = 0.1
    for (const loss of await step()) expect(loss).toBeTypeOf('number')
    const [first, ...others] = await weights()
    expect(first).not.toEqual(before[0])
    for (const own of others) expect(own).toEqual(first)
    end()
  },
)

test.each<[string, Options, RegExp]>([
  [
    'another number of a later group',
    {
      optimizer: (all, rank) =>
        new SGD([
          { params: all.slice(0, 2), lr: 0.1 },
          { params: all.slice(2), lr: 0.1, weightDecay: rank * 0.5 },
        ]),
    },
    /optimizer's settings: weightDecay 0 \(SGD, group 1\) on rank 0, weightDecay 0\.5 \(SGD, group 1\) on rank 1\./,
  ],
  [
    'one of two betas',
    { optimizer: (all, rank) => new AdamW(all, { betas: [0.9, rank === 0 ? 0.999 : 0.99] }) },
    /optimizer's settings: betas\[1\] 0\.999 \(AdamW, group 0\) on rank 0, betas\[1\] 0\.99 /,
  ],
  [
    'a count of steps that one rank alone has loaded',
    {
      optimizer: (all, rank) => {
        const optimizer = new AdamW(all)
        if (rank === 0) return optimizer
        const saved = {
          params: all.map((_, i) => i),
          lr: 1e-3,
          betas: [0.9, 0.999],
          eps: 1e-8,
          weight_decay: 0.01,
          amsgrad: false,
        }
        const zeros = ({ shape, count }: Parameter) => ({ shape, data: new Float32Array(count) })
        optimizer.loadStateDict({
          state: Object.fromEntries(
            all.map((one, i) => [i, { step: 7, exp_avg: zeros(one), exp_avg_sq: zeros(one) }]),
          ),
          param_groups: [saved],
        })
        return optimizer
      },
    },
    /optimizer's settings: step 1 \(AdamW, group 0\) on rank 0, step 8 \(AdamW, group 0\) on rank 1\./,
  ],
  [
    'another limit of a norm',
    { optimizer: (all) => new SGD(all), clip: (rank) => 0.25 + rank },
    /optimizer's settings: maxNorm 0\.25 \(clipGradNorm\) on rank 0, maxNorm 1\.25 \(clipGradNorm\) on rank 1\./,
  ],
])('%s is reported', async (_, options, said) => {
  const { step, end } = await ranksOf(2, options)
  for (const message of messages(await step())) expect(message).toMatch(said)
  end()
})

test('a communication hook on one rank alone is refused before the first step', async () => {
  let registered = 0
  const { ranks, end } = await ranksOf(2, {
    optimizer: (all) => new SGD(all),
    prepare: (ddp) => {
      if (registered++ === 0) ddp.registerCommHook(null, allreduceHook)
    },
  })
  const said =
    /disagree about the step: a communication hook on rank 0, no communication hook on rank 1\./
  await Promise.all(ranks.map(({ program }) => expect(program).rejects.toThrow(said)))
  end()
})

test.each<[string, Options['optimizer'], RegExp]>([
  [
    'another optimizer',
    (all, rank) => (rank === 0 ? new AdamW(all) : new SGD(all)),
    /ranks disagree about the optimizer: AdamW, group 0: amsgrad false, keeps exp_avg and exp_avg_sq on rank 0, SGD, group 0: nesterov false, keeps no state on rank 1\./,
  ],
  [
    'another setting that compiling fixes',
    (all, rank) => new AdamW(all, { amsgrad: rank === 1 }),
    /ranks disagree about the optimizer: AdamW, group 0: amsgrad false, .* on rank 0, AdamW, group 0: amsgrad true, .* on rank 1\./,
  ],
  [
    'momentum on one rank alone',
    (all, rank) => new SGD(all, { momentum: rank * 0.9 }),
    /keeps no state on rank 0, .*keeps momentum_buffer on rank 1\./,
  ],
])('%s is refused before the first step', async (_, optimizer, said) => {
  const { ranks, end } = await ranksOf(2, { optimizer })
  const reason = { code: 'peer.mismatch', message: expect.stringMatching(said) }
  for (const outcome of await Promise.allSettled(ranks.map(({ program }) => program))) {
    expect(outcome).toMatchObject({ status: 'rejected', reason })
  }
  end()
})

type Change = (rank: Awaited<ReturnType<typeof ranksOf>>['ranks'][number]) => Promise<void> | void

const zeros: Change = ({ model }) => {
  for (const one of model.parameters()) one.assign(new Float32Array(one.count))
}

/** Ranks that have made a step, with momentum. */
async function begun() {
  const ranks = await ranksOf(3, {
    optimizer: (all) => new SGD(all, { lr: 0.1, momentum: 0.9 }),
  })
  for (const loss of await ranks.step()) expect(loss).toBeTypeOf('number')
  return ranks
}

test.each<[string, Change, RegExp]>([
  [
    'weights',
    zeros,
    /contents of "module\.0\.weight" \(hash .*\) on ranks 0 and 2, .* on rank 1\./,
  ],
  [
    'a bias',
    ({ model }) =>
      model.loadStateDict(
        { '1.bias': { shape: [8], data: new Float32Array(8) } },
        { strict: false },
      ) as never,
    /contents of "module\.1\.bias"/,
  ],
  [
    'state',
    ({ optimizer, model }) => {
      const data = (shape: readonly number[], count: number) => ({
        shape,
        data: new Float32Array(count),
      })
      const state = model
        .parameters()
        .map(({ shape, count }) => ({ momentum_buffer: data(shape, count) }))
      const params = state.map((_, i) => i)
      const group = { lr: 0.1, momentum: 0.9, dampening: 0, weight_decay: 0, nesterov: false }
      optimizer.loadStateDict({ state: { ...state }, param_groups: [{ ...group, params }] })
    },
    /contents of the state of SGD for "module\.0\.weight" \(hash .*\) on ranks 0 and 2, .* on rank 1\. .* broadcastObjectList/,
  ],
])(
  'a load of %s on one rank alone ends the step on all; after it on all they continue',
  async (_, change, said) => {
    const { ranks, step, weights, end } = await begun()
    await change(ranks[1])
    const before = await weights()
    const outcomes = await step()
    for (const outcome of outcomes) expect(outcome).toMatchObject({ code: 'peer.mismatch' })
    expect(new Set(messages(outcomes)).size).toBe(1)
    expect(messages(outcomes)[0]).toMatch(said)
    expect(await weights()).toEqual(before)
    for (const rank of [ranks[0], ranks[2]]) await change(rank)
    for (const loss of await step()) expect(loss).toBeTypeOf('number')
    const [first, ...others] = await weights()
    for (const own of others) expect(own).toEqual(first)
    // The same again, which all have loaded before.
    await change(ranks[1])
    for (const outcome of await step()) expect(outcome).toMatchObject({ code: 'peer.mismatch' })
    end()
  },
)

test('weights and state that all ranks have again are no fault: put back, broadcast, or averaged', async () => {
  const { ranks, step, end } = await begun()
  const [{ model }] = ranks
  const passes = async () => {
    for (const loss of await step()) expect(loss).toBeTypeOf('number')
  }
  const kept = await model.stateDict()
  zeros(ranks[0])
  model.loadStateDict(kept)
  await passes()
  zeros(ranks[0])
  const share = (call: (one: Parameter, group: ProcessGroup) => Promise<unknown>) =>
    Promise.all(
      ranks.map(async ({ model, group }) => {
        for (const one of model.parameters()) await call(one, group)
      }),
    )
  await share((one, group) => broadcast(one, 0, { group }))
  await passes()
  await share((one, group) => allReduce(one, { op: ReduceOp.AVG, group }))
  await passes()
  // Twice on one rank: what counts is what is there.
  zeros(ranks[2])
  for (const { model } of ranks) model.loadStateDict(kept)
  await passes()
  // The state that all have, loaded on one.
  for (const rank of [0, 1]) {
    const states = await Promise.all(ranks.map(({ optimizer }) => optimizer.stateDict()))
    ranks[rank].optimizer.loadStateDict(states[0])
    await passes()
  }
  end()
})

test('a scale that was given to one rank alone ends the step on all ranks', async () => {
  const groups = await ringOf(2)
  const programs = groups.map((processGroup, rank) => {
    const ddp = new DistributedDataParallel(new Linear(16, 1), { processGroup })
    const optimizer = new SGD(ddp.parameters())
    const scaler = new GradScaler({ initScale: 2 ** (10 + rank) })
    const step = ({ x }: Record<string, Tensor>) => {
      const loss = ddp.forward(x).mean()
      scaler.scale(loss).backward()
      scaler.step(optimizer)
      scaler.update()
      return { loss }
    }
    return compile(step, types, { runtime })
  })
  const ends = await Promise.allSettled(programs.map(async (one) => (await one).run(batch)))
  for (const { reason } of ends as PromiseRejectedResult[])
    expect(reason).toMatchObject({
      code: 'peer.mismatch',
      message: expect.stringMatching(/GradScaler.*scale/),
    })
  for (const group of groups) group.destroy()
})

test('sums of hashes show one that differs among many, and nothing else', () => {
  const wordsOf = (lr: number) => {
    const alike = new SettingsConsistency()
    alike.add({
      of: 'SGD, group 0',
      read: () => [
        ['lr', lr],
        ['momentum', 0.9],
      ],
    })
    alike.note(new Float32Array(0))
    return alike.words()
  }
  const sumsOf = (rates: readonly number[]) => {
    const sums = new Float32Array(wordsOf(0).length)
    for (const rate of rates) for (const [i, word] of wordsOf(rate).entries()) sums[i] += word
    return sums
  }
  for (const size of [1, 2, 3, 64, 5000]) {
    const rates = new Array<number>(size).fill(0.1)
    expect(areUnlike(sumsOf(rates), size), `${size} alike`).toBe(false)
    if (size === 1) continue
    // By the last bit of a number, as sums of another order leave it.
    expect(areUnlike(sumsOf([...rates.slice(1), 0.1 + 2 ** -56]), size), `${size}`).toBe(true)
  }
})
