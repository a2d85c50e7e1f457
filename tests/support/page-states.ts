import { experiments, metaOf, parseTrainConfig } from '../../demos/experiments.ts'
import type { Lobby, LobbyMember, RoomState } from '../../src/peer/room/messages.ts'
import { SignalError } from '../../src/peer/room/refusals.ts'
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import type { StepParts } from '../../src/trainer/watch/run-events.ts'
import { whyUnsaved } from '../../src/ui/settings/checkpoint-words.ts'
import { reduce } from '../../src/ui/state/reduce.ts'
import { type Action, begin, type Snapshot } from '../../src/ui/state/snapshot.ts'
import { stopReason } from '../../src/ui/state/stop-words.ts'
import { troubleAhead, troubleOf } from '../../src/ui/state/trouble.ts'
import { type EndFacts, GpuError, PeerError, TabringError } from '../../src/util/errors.ts'
import type { RunResult } from '../../src/worker/api.ts'
import { makeSamples } from './step-samples.ts'
import { defaultDraft } from './ui-with-experiments.ts'

/** Every state that the page is designed for, each made by the reducer from actions like those of a real room. */

const ids = Array.from({ length: 64 }, (_, index) => String(index).padStart(16, '0'))

const adapters = [
  {
    vendor: 'nvidia',
    architecture: 'ada-lovelace',
    isSoftware: false,
    hasF16: true,
    hasSubgroups: true,
  },
  {
    vendor: 'apple',
    architecture: 'metal-3',
    isSoftware: false,
    hasF16: true,
    hasSubgroups: false,
  },
  {
    vendor: 'google',
    architecture: 'swiftshader',
    isSoftware: true,
    hasF16: false,
    hasSubgroups: true,
  },
]
const names = [
  'Chrome on Linux a3f1',
  "Ada's laptop",
  'Firefox on Windows 07bc',
  'Safari on iOS 5e20',
]

export function makeMember(index: number, rank: number | null = null): LobbyMember {
  return {
    id: ids[index],
    name: names[index] ?? `Chrome on Windows ${index}`,
    adapter: adapters[index % adapters.length],
    hostTag: index < 2 ? 'aa'.repeat(16) : 'bb'.repeat(16),
    hidden: index === 2,
    transport: 'auto',
    rank,
    attached: true,
    measured: {
      megaflops: [4_210_000, 1_870_000, 15_900][index % 3],
      ...(rank === null ? { serverUs: 410 + 900 * index } : { linkUs: [620, 1340 + 400 * index] }),
    },
  }
}

/** A lobby of two tabs: the maker's with three ranks, and another's with one. */
function manyRanks(own = 0): Snapshot {
  const lobby = makeLobby(4)
  const members = lobby.members.map((member, index) =>
    index === 3
      ? member
      : {
          ...member,
          tab: 'ab'.repeat(4),
          name: index === 0 ? names[0] : `${names[0]} · ${index + 1}`,
          adapter: adapters[0],
          hidden: false,
        },
  )
  return play(inside(4, own), { type: 'lobby', lobby: { ...lobby, members }, ownId: ids[own] })
}

/** Between runs all neighbours know how far they are from each other. */
export function makeLobby(count: number, state: RoomState = 'lobby', ranks = 0): Lobby {
  return {
    state,
    epoch: state === 'lobby' ? 0 : 1,
    maker: ids[0],
    members: Array.from({ length: count }, (_, index) => {
      const member = makeMember(index, index < ranks ? index : null)
      return ranks > 0
        ? member
        : { ...member, measured: { ...member.measured, ...toNext(index, count) } }
    }),
  }
}

/** What a member has measured of the way to the one behind it; null: there is none. */
function toNext(index: number, count: number, us: number | null = 640 + 5_300 * (index % 4)) {
  if (count < 2 || (count === 2 && index === 1)) return {}
  return { toNext: { id: ids[(index + 1) % count], us } }
}

/** A lobby in which these members have no way to the one after them. */
export function lobbyApart(count: number, broken: readonly number[], own = 0): Snapshot {
  const lobby = makeLobby(count)
  const members = lobby.members.map((member, index) =>
    broken.includes(index)
      ? { ...member, measured: { ...member.measured, ...toNext(index, count, null) } }
      : member,
  )
  return play(inside(count, own), { type: 'lobby', lobby: { ...lobby, members }, ownId: ids[own] })
}

export const makeSnapshot = (): Snapshot =>
  begin({
    experiments,
    invite: `https://192.168.1.20:5173/#key=${'k'.repeat(43)}`,
    name: names[0],
    draft: defaultDraft,
    transport: 'auto',
  })

export const play = (snapshot: Snapshot, ...actions: Action[]): Snapshot =>
  actions.reduce(reduce, snapshot)

export function inside(count: number, own = 0, state: RoomState = 'lobby', ranks = 0): Snapshot {
  return play(
    makeSnapshot(),
    { type: 'deviceOpened', adapter: { ...adapters[0], description: '', hasTimestamps: false } },
    { type: 'lobby', lobby: makeLobby(count, state, ranks), ownId: ids[own] },
    { type: 'entered', hasRelay: false },
  )
}

const startedAtMs = Date.UTC(2026, 10, 22, 14, 5)
/** What the store calls the run of these states. */
export const shownRunId = `${startedAtMs}-1`

/** The first group of a run. */
export function assignedGroup(count: number, rank = 0) {
  const members = makeLobby(count).members.map(
    ({ rank: _, attached: __, measured: ___, ...info }) => info,
  )
  const around = [(rank + 1) % count, (rank + count - 1) % count]
  const links = [...new Set(around)]
    .filter((peerRank) => peerRank !== rank)
    .map((peerRank) => ({ peerRank, initiator: peerRank === around[0], kind: 'webrtc' as const }))
  return { epoch: 1, rank, worldSize: count, members, links }
}

export function assigned(count: number, rank = 0): Snapshot {
  return play(
    inside(count, rank),
    { type: 'assigned', assignment: assignedGroup(count, rank), startedAtMs },
    { type: 'lobby', lobby: makeLobby(count, 'running', count), ownId: ids[rank] },
  )
}

/** A run of 540 steps after `steps` of them, 40 ms each, tested every 180. */
export function training(
  count: number,
  steps: number,
  rank = 0,
  {
    from = assigned(count, rank),
    config = {},
    noise: share = 1,
    floor = 0.08,
  }: TrainingOptions = {},
): Snapshot {
  const settings = parseTrainConfig({ epochs: 3, saves: 'auto', ...config })
  const { ofLoss } = metaOf(settings.demo).metric
  let snapshot = play(
    from,
    { type: 'config', config: settings },
    { type: 'event', event: { event: 'phase', phase: 'compile', rank }, atMs: 0 },
    { type: 'event', event: { event: 'phase', phase: 'train', rank }, atMs: 1000 },
  )
  for (let step = 1; step <= steps; step++) {
    const wave = Math.sin(step * 12.9898) * 43758.5453
    const noise = share * (wave - Math.floor(wave) - 0.5)
    const atMs = 1000 + 40 * step
    const mean = 2.3 * Math.exp((-step * share) / 60) + floor
    const loss = Math.max(0.02, mean + noise * (0.12 + 0.4 * Math.exp(-step / 80)))
    const right = 0.98 - 0.88 * Math.exp((-step * share) / 45) - 0.08 * noise
    const accuracy = Math.round(64 * Math.min(1, Math.max(0, right))) / 64
    snapshot = play(snapshot, {
      type: 'event',
      atMs,
      event: {
        event: 'step',
        step,
        totalSteps: 540,
        epoch: Math.floor((step - 1) / 180),
        loss,
        value: ofLoss === undefined ? accuracy : loss * ofLoss,
        rank,
        samples: Math.floor(64 / count) + (rank < 64 % count ? 1 : 0),
        globalSamples: 64,
        times: stepParts(count),
        bytesSent: count > 1 ? step * ((2 * (count - 1)) / count) * 814_000 : 0,
        ...(settings.exact && { stateHash: `${step - 1}`.padStart(16, 'a') }),
      },
    })
    if (step % 25 === 3) {
      const samples = makeSamples(count, step, Date.UTC(2026, 10, 22, 14, 5) + atMs, skews)
      snapshot = play(snapshot, { type: 'event', atMs, event: { event: 'samples', rank, samples } })
    }
    if (step % 180 === 0) {
      const value = 0.9745 - 0.09 * Math.exp(-step / 120) + 0.001
      const epoch = step / 180 - 1
      // It comes to be more than that of the samples that the model has seen.
      const received = { step, epoch, loss: mean + 0.0001 * step, metric: 'accuracy', value, rank }
      snapshot = play(snapshot, {
        type: 'event',
        atMs,
        event: { event: 'evaluation', ...received },
      })
    }
  }
  return snapshot
}

/** In a test that lasts, after one that took two seconds. */
function testing(count: number, steps: number): Snapshot {
  const before = training(count, steps)
  const atMs = 1000 + 40 * steps
  const rank = before.run!.rank
  const begin = { event: 'phase', phase: 'evaluate', rank } as const
  const value = { event: 'evaluation', step: steps, epoch: 1, metric: 'accuracy', rank } as const
  return play(
    before,
    { type: 'event', atMs, event: begin },
    { type: 'event', atMs: atMs + 2000, event: { ...value, loss: 0.16, value: 0.951 } },
    { type: 'event', atMs: atMs + 2000, event: begin },
    { type: 'testLasts', sinceMs: atMs + 2000 },
  )
}

/** Of the members in another browser than rank 0's: its clock is another. units: ms. */
const skews = Array.from({ length: 12 }, (_, index) => (index < 2 ? 0 : 3.7))

export interface TrainingOptions {
  /** Where its tab was assigned its rank. */
  readonly from?: Snapshot
  readonly config?: TrainConfigInput
  /** Of the usual noise, and of the usual pace. */
  readonly noise?: number
  /** What the loss falls to. */
  readonly floor?: number
}

/** A tab that trains for the fourth time, its runs differing in learning rate and batch. */
export function comparing(): Snapshot {
  const started = Date.UTC(2026, 10, 22, 14, 5)
  const again = (from: Snapshot, index: number) =>
    play(from, {
      type: 'assigned',
      assignment: {
        epoch: index + 1,
        rank: 0,
        worldSize: 3,
        members: from.run!.members,
        links: [],
      },
      startedAtMs: started + 60_000 * index,
    })
  const settings = [
    { lr: 0.003 },
    { lr: 0.01, optimizer: 'sgd' },
    { batchSize: 256 },
    { model: 'cnn' },
  ] as const
  let snapshot = assigned(3)
  for (const [index, config] of settings.entries()) {
    const isLast = index === settings.length - 1
    const steps = isLast ? 200 : 540 - 60 * index
    snapshot = training(3, steps, 0, {
      from: index === 0 ? snapshot : again(snapshot, index),
      config,
      noise: 1 - 0.22 * index,
    })
    if (!isLast)
      snapshot = play(
        snapshot,
        index === 1
          ? { type: 'failed', code: 'peer.aborted', text: stopReason(names[0]) }
          : { type: 'finished', result: makeResult(3), bytesSent: 586e6 },
      )
  }
  const [first] = snapshot.runs
  return play(snapshot, { type: 'runNamed', id: first.id, name: 'the one from the lecture' })
}

/** A tab that trained digits and now learns a text, whose metric is no accuracy. */
export function otherDemo(): Snapshot {
  const before = play(training(2, 180), {
    type: 'finished',
    result: makeResult(2),
    bytesSent: 586e6,
  })
  const { members } = before.run!
  const text = training(2, 170, 0, {
    from: play(
      before,
      { type: 'setting', key: 'demo', value: 'text' },
      {
        type: 'assigned',
        assignment: { epoch: 2, rank: 0, worldSize: 2, members, links: [] },
        startedAtMs: Date.UTC(2026, 10, 22, 14, 9),
      },
    ),
    config: { demo: 'text' },
    floor: 1.55,
  })
  const tested = (step: number, value: number) => {
    const received = { step, epoch: 0, loss: value * Math.LN2, metric: 'loss', value, rank: 0 }
    return {
      type: 'event',
      atMs: 1000 + 40 * step,
      event: { event: 'evaluation', ...received },
    } as const
  }
  return play(text, tested(80, 3.31), tested(170, 2.613))
}

export function makeResult(worldSize: number): RunResult {
  const config = parseTrainConfig({ epochs: 3 })
  return {
    steps: 540,
    loss: 0.0713,
    trainValue: 0.984375,
    heldOutLoss: 0.1341,
    metric: { name: 'accuracy', unit: 'share', better: 'higher' },
    value: 0.9745,
    best: 0.9745,
    testAccuracy: 0.9745,
    bestAccuracy: 0.9745,
    paramHash: '5f0c9a4471b2e8d3',
    samples: 11_880,
    seconds: 22.4,
    timeline: [],
    lostDevices: 0,
    record: {
      config,
      worldSize,
      shares: [],
      bucketCapMb: 8,
      buckets: [],
      variants: {},
      measured: {},
      links: { choice: { oneShotMaxBytes: 8192, directMaxBytes: 262144 }, bytesPerMs: 20_000 },
      adapters: [],
    },
    links: { bytesSent: 586e6, bytesReceived: 586e6, messagesSent: 9000, messagesReceived: 9000 },
    adapter: { ...adapters[0], description: '', hasTimestamps: false },
  }
}

export function failed(
  count: number,
  code: TabringError['code'],
  text: string,
  facts: EndFacts = {},
): Snapshot {
  return play(
    training(count, 203),
    { type: 'failed', code, text, ...facts },
    { type: 'lobby', lobby: makeLobby(count, 'failed'), ownId: ids[0] },
  )
}

/** A run that lost a rank at step 203, and was saved before. */
export const failedSaved = (count: number, step: number): Snapshot =>
  play(
    training(count, 203),
    saved(step),
    {
      type: 'failed',
      code: 'peer.lost',
      text: `epoch 1: rank 1 (${names[1]}) is gone: left. Start again without it, or once it is back.`,
    },
    { type: 'lobby', lobby: makeLobby(count, 'failed'), ownId: ids[0] },
  )

function withoutMember(snapshot: Snapshot, index: number): Snapshot {
  const lobby = snapshot.lobby!
  const members = lobby.members.filter(({ id }) => id !== ids[index])
  return { ...snapshot, lobby: { ...lobby, members } }
}

/** A checkpoint of the run is in this tab's browser. */
export const saved = (step: number, isKept = false): Action => ({
  type: 'event',
  event: {
    event: 'checkpoint',
    step,
    name: `step-${step}.safetensors`,
    isBest: false,
    isKept,
    rank: 0,
  },
  atMs: 0,
})

/** A person has just saved the run. */
export const savedByHand = (step: number): Action => ({
  type: 'saving',
  runId: shownRunId,
  saving: { is: 'done', step },
  file: { step, name: `step-${step}.safetensors` },
})

/** All states, by the name of their picture. */
export function makeStates(): Record<string, Snapshot> {
  const origin = 'http://192.168.1.20:5173'
  const shut = (trouble: ReturnType<typeof troubleAhead>) =>
    play(makeSnapshot(), { type: 'outside', trouble: trouble! })
  const insecure = { isSecureContext: false, hasGpu: false, origin, port: '5173' }
  const finished = (count: number) =>
    play(
      training(count, 540),
      { type: 'finished', result: makeResult(count), bytesSent: 586e6 },
      { type: 'lobby', lobby: makeLobby(count, 'finished'), ownId: ids[0] },
    )
  const gone =
    "epoch 1: rank 1 (Ada's laptop) is gone: left. Start again without it, or once it is back."
  const noRoute =
    'none of 3 addresses here reaches one of 2 there (ICE failed). A firewall or NAT may be in between: use one network, or a TURN server (--ice-servers for the launcher or the server, or the option rtc).'
  const unreachable = (code: string, ranks: readonly number[], text: string, own = 0) =>
    play(
      assigned(3, own),
      { type: 'linked', peerRank: 1, kind: 'port' },
      { type: 'failed', code, ranks, text },
      { type: 'lobby', lobby: makeLobby(3, 'failed'), ownId: ids[own] },
    )
  return {
    insecure: shut(troubleAhead(insecure)),
    'no-webgpu': shut(troubleAhead({ ...insecure, isSecureContext: true })),
    'no-adapter': shut(
      troubleOf(
        new GpuError('gpu.unavailable', 'device: this browser has WebGPU but offers no adapter.'),
      ),
    ),
    'loss-not-finite': play(
      training(1, 3),
      {
        type: 'failed',
        code: 'train.nan',
        text: 'epoch 1: rank 0: step 3: matmul: expected finite arguments, but parameter "module.0.weight" has values that are not finite. An earlier step caused this: lower the learning rate, or clip gradients.',
      },
      { type: 'lobby', lobby: makeLobby(1, 'failed'), ownId: ids[0] },
    ),
    'resumed-with-others': play(training(3, 12), {
      type: 'event',
      event: {
        event: 'resumed',
        step: 8,
        epoch: 0,
        best: 0.9,
        stepsLeft: 529,
        differences: ['ranks 2, now 3', 'rows of each rank [32,32], now [22,21,21]', 'kernels'],
        rank: 0,
      },
      atMs: 2000,
    }),
    'bad-link': shut(troubleOf(new PeerError('config.invalid', 'room link: it must hold …'))),
    'bad-setting': shut(
      troubleOf(
        new TabringError(
          'config.invalid',
          'switches: lanes must be a whole number from 1 to 8, got "1,2" (the page address). Correct or remove it.',
        ),
      ),
    ),
    'room-full': shut(
      troubleOf(new SignalError('room-full', 'the room is full: it has 64 members.')),
    ),
    'unknown-room': shut(troubleOf(new SignalError('unknown-room', 'this room does not exist.'))),
    'no-key': shut(troubleOf(new SignalError('no-key', 'this room is not open.'))),
    declined: shut(troubleOf(new SignalError('declined', 'the host declined to let this tab in.'))),
    'waiting-to-be-let-in': play(
      makeSnapshot(),
      { type: 'deviceOpened', adapter: { ...adapters[0], description: '', hasTimestamps: false } },
      { type: 'asking', host: 'Ada' },
    ),
    'lobby-asks': play(inside(2), {
      type: 'asks',
      asks: [
        { id: '1'.repeat(16), name: 'Grace' },
        { id: '2'.repeat(16), name: 'A name that is as long as the server lets it be' },
      ],
    }),
    'no-server': shut(
      troubleOf(new PeerError('signal.lost', 'signaling: no connection to wss://… (1006).')),
    ),
    opening: makeSnapshot(),
    entering: play(makeSnapshot(), {
      type: 'deviceOpened',
      adapter: { ...adapters[0], description: '', hasTimestamps: false },
    }),
    alone: inside(1),
    'lobby-maker': inside(3),
    'lobby-checkpoints': play(
      inside(2),
      {
        type: 'checkpoints',
        files: [
          {
            step: 540,
            isLatest: true,
            isBest: false,
            isKept: true,
            name: 'step-540.safetensors',
            score: 0.9512,
          },
          { step: 360, isLatest: false, isBest: true, name: 'step-360.safetensors', score: 0.9619 },
          {
            step: 128,
            isLatest: false,
            isBest: false,
            name: 'upload-step-128.safetensors',
            score: null,
          },
        ].map((file) => ({
          place: 'page-digits-mlp',
          sizeBytes: 2_442_000,
          isKept: false,
          savedAtMs: Date.UTC(2026, 10, 22, 14, 5),
          about: 'digits, seed 0',
          ...file,
        })),
      },
      {
        type: 'checkpointNote',
        text: 'Start resumes from step 360, with the settings of that run. Epochs count from its beginning.',
        isError: false,
      },
    ),
    'lobby-joiner': play(inside(3, 1), {
      type: 'proposed',
      config: parseTrainConfig({ epochs: 2, seed: 5 }),
    }),
    'lobby-local': {
      ...inside(1),
      invite: makeSnapshot().invite.replace('192.168.1.20', 'localhost'),
    },
    'lobby-host': play(
      { ...inside(2), invite: makeSnapshot().invite.replace('192.168.1.20', 'localhost') },
      {
        type: 'server',
        facts: {
          lanUrls: ['https://192.168.1.20:5173/', 'https://[2001:db8:a:b:c:d:e:f]:5173/'],
          asks: false,
          data: '/data/',
        },
      },
      { type: 'setting', key: 'data', value: '/data/' },
    ),
    'lobby-wrong-setting': play(
      inside(3),
      { type: 'setting', key: 'epochs', value: '0' },
      { type: 'setting', key: 'batchSize', value: '2' },
    ),
    'lobby-small-batch': play(
      inside(12),
      { type: 'setting', key: 'demo', value: 'text' },
      { type: 'setting', key: 'batchSize', value: '8' },
    ),
    'lobby-late': inside(4, 3, 'running', 3),
    'lobby-barred': play(
      inside(4, 3),
      { type: 'proposed', config: parseTrainConfig({}) },
      {
        type: 'assigned',
        assignment: { ...assignedGroup(4, 3), run: 1, epoch: 2, joining: 1 },
        startedAtMs,
      },
      { type: 'lobby', lobby: { ...makeLobby(4, 'running', 3), ballot: 1 }, ownId: ids[3] },
      {
        type: 'failed',
        code: 'peer.unreachable',
        ranks: [2],
        text: `link to rank 2 (${names[2]}): no connection: ${noRoute}`,
      },
    ),
    'lobby-server-lost': play(inside(3), { type: 'serverLost', text: 'signaling: ended' }),
    connecting: play(assigned(3), { type: 'linked', peerRank: 1, kind: 'port' }),
    'lobby-many-ranks': manyRanks(),
    'lobby-rank-lost': play(withoutMember(manyRanks(), 2), {
      type: 'refused',
      text: `${names[0]} · 3, a rank of this tab, has left the room: compute worker: ended (crashed or closed). Reload the tab to start a new one.`,
    }),
    'lobby-unreachable': lobbyApart(3, [0, 1]),
    'lobby-apart-guest': lobbyApart(4, [1], 2),
    'lobby-twelve': inside(12),
    'lobby-thirty': inside(30),
    compiling: play(
      assigned(3),
      { type: 'config', config: parseTrainConfig({}) },
      { type: 'event', event: { event: 'phase', phase: 'compile', rank: 0 }, atMs: 0 },
    ),
    training: training(3, 260),
    'training-testing': testing(3, 270),
    'training-one': training(1, 260),
    'training-compared': comparing(),
    'training-text': otherDemo(),
    'training-two': training(2, 260, 1),
    'training-four': training(4, 260, 1),
    'training-twelve': training(12, 100, 4),
    'training-seventeen': training(17, 100, 4),
    'training-thirty': training(30, 100, 4),
    paused: play(training(3, 260), {
      type: 'event',
      event: { event: 'paused', step: 260, by: [0], rank: 0 },
      atMs: 0,
    }),
    'paused-saved': play(
      training(3, 260),
      { type: 'event', event: { event: 'paused', step: 260, by: [0], rank: 0 }, atMs: 0 },
      savedByHand(260),
    ),
    'training-unsaved': play(
      training(3, 260),
      { type: 'checkpoints', files: [] },
      {
        type: 'event',
        event: { event: 'unsaved', step: 250, code: 'file.unwritable', text: '', rank: 0 },
        atMs: 0,
      },
    ),
    'training-not-saved': play(
      training(3, 260, 1),
      { type: 'checkpoints', files: [] },
      {
        type: 'saving',
        runId: shownRunId,
        saving: {
          is: 'failed',
          text: whyUnsaved('file.unwritable', ''),
        },
      },
    ),
    stopping: play(training(3, 260), { type: 'stopping' }),
    'loading-given': play(
      assigned(3),
      { type: 'config', config: parseTrainConfig({ data: 'given' }) },
      { type: 'event', event: { event: 'phase', phase: 'load', rank: 0 }, atMs: 0 },
      {
        type: 'event',
        event: { event: 'given', doneBytes: 3_200_000, totalBytes: 11_500_000, rank: 0 },
        atMs: 0,
      },
    ),
    'training-undecided': play(training(3, 260), {
      type: 'event',
      event: {
        event: 'undecided',
        missing: [makeMember(1).id, makeMember(2).id],
        hadMore: false,
        step: 8,
        rank: 0,
      },
      atMs: 0,
    }),
    'training-undecided-guest': play(
      training(3, 260, 1),
      { type: 'serverLost', text: 'ended' },
      {
        type: 'event',
        event: {
          event: 'undecided',
          missing: [makeMember(0).id],
          hadMore: false,
          step: 8,
          rank: 1,
        },
        atMs: 0,
      },
    ),
    'failed-joining': play(
      inside(3, 2),
      {
        type: 'assigned',
        assignment: { ...assignedGroup(3, 2), run: 1, epoch: 2, joining: 1 },
        startedAtMs,
      },
      { type: 'failed', code: 'peer.lost', text: 'membership: no member is left.' },
      { type: 'lobby', lobby: makeLobby(3, 'finished'), ownId: ids[2] },
    ),
    'training-server-lost': play(training(3, 260), { type: 'serverLost', text: 'ended' }),
    stopped: play(
      training(3, 203),
      {
        type: 'failed',
        code: 'peer.aborted',
        text: `epoch 1: rank 0 (x): ${stopReason(names[0])}`,
      },
      { type: 'lobby', lobby: makeLobby(3, 'failed'), ownId: ids[0] },
    ),
    'stopped-exact': play(
      training(3, 203, 0, { config: { exact: true } }),
      { type: 'failed', code: 'peer.aborted', text: stopReason(names[0]) },
      { type: 'lobby', lobby: makeLobby(3, 'failed'), ownId: ids[0] },
    ),
    'failed-lost': withoutMember(failed(3, 'peer.lost', gone), 1),
    'failed-saved': withoutMember(failedSaved(3, 180), 1),
    'stopped-saved': play(
      training(3, 203),
      saved(180),
      { type: 'failed', code: 'peer.aborted', text: stopReason(names[0]) },
      { type: 'lobby', lobby: makeLobby(3, 'failed'), ownId: ids[0] },
    ),
    'failed-unreachable': unreachable(
      'peer.unreachable',
      [2],
      `link to rank 2 (${names[2]}): no connection: ${noRoute}`,
    ),
    'failed-unreachable-others': unreachable(
      'peer.unreachable',
      [1, 2],
      `epoch 1: rank 1 (${names[1]}) lost its link to rank 2 (${names[2]}): no connection: ${noRoute}`,
    ),
    'failed-unreachable-guest': play(
      unreachable(
        'peer.late',
        [2],
        `epoch 1: not every rank had its links in time: missing rank 2 (${names[2]}). Check those tabs and start again.`,
        1,
      ),
      { type: 'entered', hasRelay: true },
    ),
    'failed-removed': withoutMember(
      failed(
        3,
        'peer.removed',
        `epoch 1: rank 2 (${names[2]}) is gone: removed by ${names[0]}. Start again without it, or once it is back.`,
        { ranks: [2] },
      ),
      2,
    ),
    removed: shut(troubleOf(new SignalError('removed', `removed by ${names[0]}`, names[0]))),
    'failed-device': failed(
      3,
      'gpu.lost',
      'recovery: the 3 ranks went back 4 times without progress in training, at most 3 times are allowed; the last time: rank 2 lost its device (unknown: the GPU process crashed). Close other pages that use the GPU, or start again with a smaller batch or without that rank.',
    ),
    finished: finished(3),
    'finished-one': finished(1),
    'worker-dead': play(
      training(3, 203),
      { type: 'failed', code: 'worker.dead', text: 'compute worker: ended (crashed or closed).' },
      {
        type: 'outside',
        trouble: troubleOf(
          new TabringError('worker.dead', 'compute worker: ended (crashed or closed).'),
        ),
      },
    ),
  }
}

/** Of a step of 38 ms, as a rank alone and as one of several report it. */
const stepParts = (count: number): StepParts =>
  count > 1
    ? {
        ...{ data: 0.6, forward: 7.1, backward: 14.9, wait: 3.2, wire: 10.8, optimizer: 1.4 },
        ...{ audit: 0, total: 38 },
      }
    : {
        ...{ data: 0.6, forward: 11.5, backward: 23.7, wait: 0, wire: 0, optimizer: 2.2 },
        ...{ audit: 0, total: 38 },
      }
