import { afterEach, expect, test, vi } from 'vitest'
import { usageProblem } from '../../node/command-line.ts'
import { docsText } from '../../node/docs.ts'
import { checkServers } from '../../node/ice/ice-source.ts'
import { parseLaunch } from '../../node/launch/options.ts'
import { parsePin } from '../../node/launch/pin.ts'
import { serveMounts } from '../../node/mounts.ts'
import { startFlags } from '../../node/start-flags.ts'
import { parseOptions } from '../../node/train/options.ts'
import { tabring } from '../../node/vite-plugin.ts'
import { getCheckpoint, putCheckpoint } from '../../src/data/checkpoint-folder.ts'
import { memoryFileStore } from '../../src/data/file-store.ts'
import { listServed, readFile } from '../../src/data/folder.ts'
import { writeZip } from '../../src/data/zip.ts'
import { expandNodeList } from '../../src/distributed/rendezvous/node-list.ts'
import { tasksPerNode, wholeIn } from '../../src/distributed/rendezvous/slurm.ts'
import { readSafetensors, writeSafetensors } from '../../src/entries/checkpoint.ts'
import {
  CharTokenizer,
  CsvTable,
  hostTensor,
  randomSplit,
  readCsv,
  readIdx,
  readNpy,
  readNpz,
  TensorDataset,
} from '../../src/entries/data.ts'
import { pipeline } from '../../src/entries/distributed/split.ts'
import { HashStore, initProcessGroup, OpfsStore } from '../../src/entries/distributed.ts'
import { einsum, load, repeat, save } from '../../src/entries/index.ts'
import { pad } from '../../src/entries/nn/functional.ts'
import { Linear, ModuleDict, Parameter, stripModulePrefix } from '../../src/entries/nn.ts'
import { SGD } from '../../src/entries/optim.ts'
import { Trace, withTrace } from '../../src/graph/trace/trace.ts'
import { parseClientMessage } from '../../src/peer/room/client-messages.ts'
import { messageOf } from '../../src/util/errors.ts'
import { numberFormat } from '../../src/util/number-format.ts'
import { checked } from '../../src/util/switches.ts'

// What comes from outside (a flag, a file, an address, a message) may be of any length; what an error quotes of it is not.

const long = 'x'.repeat(10_000)
const many = new Array<number>(10_000).fill(7)
const maxChars = 600

afterEach(() => vi.unstubAllGlobals())

const inStep = (body: () => unknown) => () => withTrace(new Trace(), body)
const x = () => new Parameter([2, 2], new Float32Array(4))
const npyHeader = Uint8Array.from(`\x93NUMPY\x03\0\0\x10\0\0${'a'.repeat(4096)}`, (character) =>
  character.charCodeAt(0),
)
const bytes = (text: string) => new TextEncoder().encode(text)
/** A safetensors file with this header. */
function withHeader(header: object): Uint8Array<ArrayBuffer> {
  const text = bytes(JSON.stringify(header))
  const file = new Uint8Array(8 + text.length)
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true)
  file.set(text, 8)
  return file
}
const weights = () =>
  writeSafetensors([['a', { dtype: 'F32', shape: [1], data: new Float32Array(1) }]])
function start(...argv: string[]): never {
  try {
    startFlags(argv)
  } catch (thrown) {
    throw new Error(usageProblem(thrown))
  }
  throw new Error('')
}
const folder = () => memoryFileStore().folder('a')
const answer = (text: string, status = 200) =>
  vi.stubGlobal('fetch', async () => new Response(text, { status }))

const calls: Readonly<Record<string, () => unknown>> = {
  // command lines
  'a number of tabs': () => parseLaunch('run', ['--nproc-per-node', long, 'a.ts'], {}),
  'an address': () => parseLaunch('run', ['--rdzv-endpoint', `[${long}`, 'a.ts'], {}),
  'the name of a flag': () => parseLaunch('run', [`--${long}`, 'a.ts'], {}),
  'a choice': () => parseLaunch('run', ['--adapter', long, 'a.ts'], {}),
  'a name': () => parseLaunch('run', ['--rdzv-id', long, 'a.ts'], {}),
  'a fingerprint': () => parsePin(long),
  'a switch of the environment': () => parseLaunch('run', ['a.ts'], { TABRING_DEBUG: long }),
  'a port': () => start('--port', long),
  'an origin': () => start('--allow-origin', long),
  'a learning rate': () => parseOptions(['--lr', long]),
  'a range of ranks': () => parseOptions(['--elastic', long]),
  'a model': () => parseOptions(['--model', long]),
  'a page of the documentation': () => docsText([long]),
  'pages of the documentation': () => docsText([long, long]),
  'a prefix of files': () => serveMounts({ [long]: '.' }),
  'options of the plugin': () => tabring({ allowedOrigins: [long] }),
  'an ICE server': () => checkServers('ice', [{ urls: long }]),
  'an option of an ICE server': () => checkServers('ice', [{ urls: 'stun:a', [long]: 1 }]),
  // the environment
  "Slurm's list of nodes": () => expandNodeList(`a[${long}`),
  "Slurm's counts": () => tasksPerNode(long),
  "Slurm's number": () => wholeIn({ SLURM_PROCID: long }, 'SLURM_PROCID'),
  'a switch': () => checked('code', { [long]: 1 }),
  'the value of a switch': () => checked('code', { debug: long }),
  'an init method': () => initProcessGroup({ initMethod: long }),
  'a backend': () => initProcessGroup({ backend: `nccl${long}` as 'auto' }),
  'options that are a text': () => initProcessGroup(long as never),
  // files
  'the name of a CSV file': () => readCsv('', long),
  'a CSV column': () => new CsvTable('table', ['a'], [['1']], [1]).numbers(long),
  'CSV columns': () => new CsvTable('table', many.map(String), [], []).numbers('a'),
  'a repeated CSV column': () => readCsv(`${long},${long}\n1,2`, 'table'),
  'a CSV value': () => new CsvTable('table', ['a'], [[long]], [1]).numbers('a'),
  'the name of an IDX file': () => readIdx(bytes('not IDX'), long),
  'the name of an array of NumPy': () => readNpy(bytes('not NumPy'), long),
  'a header of NumPy': () => readNpy(npyHeader, 'a'),
  'an array in an archive of NumPy': () => readNpz(writeZip([[`${long}.npy`, bytes('?')]]), 'a'),
  'arrays in an archive of NumPy': () =>
    readNpz(writeZip([[long, bytes('?')]]), 'a', { arrays: [long] }),
  'the name of a file of weights': () => readSafetensors(bytes('none'), long),
  'the name of a checkpoint': () => load(weights(), long),
  'a dtype in a file of weights': () => readSafetensors(withHeader({ a: { dtype: long } })),
  'a tensor in a file of weights': () => readSafetensors(withHeader({ [long]: { dtype: 'Q' } })),
  'a shape in a file of weights': () =>
    readSafetensors(
      withHeader({ a: { dtype: 'F32', shape: [...many, -1], data_offsets: [0, 4] } }),
    ),
  'a name in a file of weights': () =>
    writeSafetensors([[long, { dtype: 'F32', shape: [2], data: new Float32Array(1) }]]),
  'a key to save': () => save({ [`$${long}`]: 1 }),
  'what cannot be saved': () => save({ [long]: new Map() as never }),
  'a checkpoint of a folder': async () => getCheckpoint(await folder(), long),
  'a manifest': async () => {
    const files = await folder()
    await files.write('checkpoints.json', new Blob([long]))
    return getCheckpoint(files, 'latest')
  },
  'checkpoints of a folder': async () => {
    const files = await folder()
    for (let step = 0; step < 40; step++)
      await putCheckpoint(files, bytes('a'), {
        label: `${'y'.repeat(100)}${step}`,
        isBest: false,
        keepLast: 40,
        savedAtMs: step,
      })
    return getCheckpoint(files, long)
  },
  'the address of a file': () => {
    answer('', 404)
    return readFile({ path: long, source: { url: `http://a/${long}` } })
  },
  'a listing': () => {
    answer(long)
    return listServed(`http://a/${long}`)
  },
  // state dicts
  'a missing key': () =>
    new Linear(2, 2).loadStateDict({ [long]: hostTensor([1], new Float32Array(1)) }),
  'the shape of a key': () =>
    new ModuleDict({ [long]: new Linear(2, 2) }).loadStateDict({
      [`${long}.weight`]: hostTensor([...new Array(300).fill(1)], new Float32Array(1)),
      [`${long}.bias`]: hostTensor([2], new Float32Array(2)),
    }),
  'a prefix of keys': () => stripModulePrefix({ [long]: 1, [`module.${long}`]: 2 } as never),
  'a module by name': () => new ModuleDict({ [`a${long}`]: new Linear(2, 2) }).get(long),
  'the state of an optimizer': () =>
    new SGD(new Linear(2, 2).parameters(), { lr: 0.1 }).loadStateDict({ [long]: 1 } as never),
  'a balance': () => pipeline(new Linear(2, 2), { stages: 1, balance: long } as never),
  // data
  'fields of a data set': () =>
    new TensorDataset(
      Object.fromEntries(
        many.map((_, n) => [`field${n}`, hostTensor([n % 2], new Float32Array(n % 2))]),
      ),
    ),
  lengths: () => randomSplit(new TensorDataset({ a: hostTensor([1], new Float32Array(1)) }), many),
  'a character': () => new CharTokenizer([long]),
  'a format': () => numberFormat(long),
  'a shape': () => hostTensor(many, new Float32Array(1)),
  // functions of tensors
  'an equation': inStep(() => einsum(`${long}->`, x())),
  padding: inStep(() => pad(x(), many)),
  'a padding mode': inStep(() => pad(x(), [1, 1], long as 'constant')),
  repetitions: inStep(() => repeat(x(), [...many, 1.5])),
  // rooms and stores
  'a key of a store': () => new HashStore({ timeoutMs: 1 }).get(long),
  'keys of a store': () =>
    new HashStore().wait(
      many.map((_, n) => `${long}${n}`),
      1,
    ),
  'the value of a counter': async () => {
    const store = new HashStore()
    await store.set(long, long)
    return store.add(long, 1)
  },
  'the name of a room': () => OpfsStore.open(long),
  "a member's message": () => {
    const parsed = parseClientMessage(JSON.stringify({ type: long }))
    throw new Error(parsed.ok ? '' : parsed.text)
  },
  'a name in a message': () => {
    const parsed = parseClientMessage(JSON.stringify({ type: 'pong', [long]: 1, at: long }))
    throw new Error(parsed.ok ? '' : parsed.text)
  },
}

test.each(Object.entries(calls))('%s of any length makes a short error', async (_, call) => {
  const error = await Promise.resolve()
    .then(call)
    .then(
      () => null,
      (thrown) => thrown,
    )
  expect(error).toBeInstanceOf(Error)
  // It quotes what it was given, cut, or says how long it is.
  expect(messageOf(error)).toMatch(/…|1000[01]/)
  expect(messageOf(error).length, messageOf(error).slice(0, maxChars)).toBeLessThan(maxChars)
})
