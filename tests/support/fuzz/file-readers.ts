import { readFileSync } from 'node:fs'
import { crc32, deflateSync, gzipSync } from 'node:zlib'
import { packIdx, unpackIdx } from '../../../demos/digits/idx-pack.ts'
import { readIdxFile } from '../../../demos/digits/read-idx-file.ts'
import { experiments } from '../../../demos/experiments.ts'
import { readPicture, writePicture } from '../../../demos/picture/pixels.ts'
import { decodeText, readPrompt, readText } from '../../../demos/text/tokens.ts'
import { bytePairTokenizer } from '../../../src/data/byte-pairs.ts'
import {
  getCheckpoint,
  manifestName,
  putCheckpoint,
  removeCheckpoint,
} from '../../../src/data/checkpoint-folder.ts'
import { type CsvOptions, readCsv } from '../../../src/data/csv.ts'
import { loadIdxFolder } from '../../../src/data/dataset.ts'
import { listServed } from '../../../src/data/folder.ts'
import { readIdx } from '../../../src/data/idx.ts'
import { IdxDataset } from '../../../src/data/idx-dataset.ts'
import { decodeImage } from '../../../src/data/image/decode.ts'
import { forgetOrientation } from '../../../src/data/image/orientation.ts'
import { readTokenizer } from '../../../src/data/language/pretrained-tokenizer.ts'
import { readTextTable } from '../../../src/data/language/text-table.ts'
import { tokenizeTexts } from '../../../src/data/language/tokenize-texts.ts'
import { readNpy, readNpz } from '../../../src/data/npy.ts'
import { readSafetensors, writeSafetensors } from '../../../src/data/safetensors.ts'
import { CharTokenizer } from '../../../src/data/text.ts'
import { readTorch } from '../../../src/data/torch/read-torch.ts'
import { writeTorch } from '../../../src/data/torch/write-torch.ts'
import { writeZip, ZipArchive } from '../../../src/data/zip.ts'
import { loadAdapter, saveAdapter } from '../../../src/ddp/checkpoint/adapter-file.ts'
import { packCheckpoint, unpackCheckpoint } from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { loadModel, saveModel } from '../../../src/ddp/checkpoint/model-file.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { getPeftModel } from '../../../src/nn/lora/peft-model.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { GradScaler } from '../../../src/optim/grad-scaler.ts'
import { StepLR } from '../../../src/optim/lr-scheduler/decays.ts'
import { decodeElasticMessage, encodeElasticMessage } from '../../../src/peer/elastic/messages.ts'
import { parseServerMessage } from '../../../src/peer/room/messages.ts'
import { newRoomUrl, parseRoomUrl } from '../../../src/peer/room/room-url.ts'
import { readModelConfig } from '../../../src/pretrained/config.ts'
import { loadPretrained } from '../../../src/pretrained/load-pretrained.ts'
import { RunLog, readRunLog } from '../../../src/trainer/watch/run-log.ts'
import { rememberRuns } from '../../../src/ui/run/run-memory.ts'
import { launcherSwitches } from '../../../src/util/switches.ts'
import golden from '../../golden/decode.json' with { type: 'json' }
import numpy from '../../golden/npy.json' with { type: 'json' }
import zips from '../../golden/zip.json' with { type: 'json' }
import { idxFile, smallFolder } from '../idx-files.ts'
import { infoOf } from '../member-info.ts'
import { comparing } from '../page-states.ts'
import {
  folderOf,
  goldenTokenizers,
  shardedFiles,
  smallConfig,
  tokenizerConfig,
} from '../pretrained-folder.ts'
import type { Draw } from '../simulation/draw.ts'
import { checkDraft, draftFromQuery, recallRuns } from '../ui-with-experiments.ts'
import { mutatedBytes, mutatedJson } from './mutate.ts'

type Bytes = Uint8Array<ArrayBuffer>

/** Something that reads bytes from outside. */
export interface FileReader {
  readonly name: string
  /** What its input is, and so how that is mutated. */
  readonly form: 'bytes' | 'text' | 'json'
  /** Input that it takes. */
  seeds(): readonly (Uint8Array | string)[] | Promise<readonly (Uint8Array | string)[]>
  /** Reads input, and checks the whole result. */
  read(bytes: Bytes, draw: Draw): unknown
  /** Sums and lengths made right again, so that what is behind them is read. */
  repair?(bytes: Bytes): Bytes
  /** Input mutated where its structure is known; in the place of other mutations at times. */
  mutate?(bytes: Bytes, draw: Draw): Bytes
  /** Codes of its errors. Default: of data and settings. */
  readonly codes?: RegExp
}

const utf8 = new TextEncoder()
const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes)
const fromBase64 = (text: string) => Uint8Array.from(Buffer.from(text, 'base64'))
const gzipped = (bytes: Uint8Array): Bytes => new Uint8Array(gzipSync(bytes))

/** More than any reader may unpack of a small file. units: bytes. */
const bombBytes = 128 * 2 ** 20
const gzipBomb = () =>
  new Uint8Array(
    gzipSync(Buffer.concat([idxFile([1, 28, 28]), Buffer.alloc(bombBytes)]), { level: 1 }),
  )

const pngSignature = Buffer.from('89504e470d0a1a0a', 'hex')
function pngChunk(name: string, contents: Uint8Array): Buffer {
  const named = Buffer.concat([Buffer.from(name), contents])
  const ends = Buffer.alloc(8)
  ends.writeUInt32BE(contents.length)
  ends.writeUInt32BE(crc32(named), 4)
  return Buffer.concat([ends.subarray(0, 4), named, ends.subarray(4)])
}
/** Of 2 x 2 pixels, with far more in it. */
function pngBomb(where: 'IDAT' | 'iCCP'): Uint8Array {
  const header = Uint8Array.of(0, 0, 0, 2, 0, 0, 0, 2, 8, 0, 0, 0, 0)
  const many = deflateSync(Buffer.alloc(bombBytes), { level: 1 })
  const few = deflateSync(Buffer.alloc(6))
  const profile = Buffer.concat([Buffer.from('p\0\0'), many])
  const chunks =
    where === 'IDAT' ? [pngChunk('IDAT', many)] : [pngChunk('iCCP', profile), pngChunk('IDAT', few)]
  return Buffer.concat([
    pngSignature,
    pngChunk('IHDR', header),
    ...chunks,
    pngChunk('IEND', new Uint8Array()),
  ])
}
/** Checksums of its chunks. */
function repairedPng(bytes: Bytes): Bytes {
  const view = new DataView(bytes.buffer)
  for (let at = 8; at + 12 <= bytes.length; ) {
    const end = at + 8 + view.getUint32(at)
    if (end + 4 > bytes.length) break
    view.setUint32(end, crc32(bytes.subarray(at + 4, end)))
    at = end + 4
  }
  return bytes
}

/** The length before a safetensors header. */
function repairedTensors(bytes: Bytes): Bytes {
  const end = bytes.lastIndexOf(0x7d) + 1
  if (bytes.length >= 8 && end > 8)
    new DataView(bytes.buffer).setBigUint64(0, BigInt(end - 8), true)
  return bytes
}
/** Another header over the same data. */
function withOtherHeader(bytes: Bytes, draw: Draw): Bytes {
  const length = Number(new DataView(bytes.buffer).getBigUint64(0, true))
  const header = JSON.parse(textOf(bytes.subarray(8, 8 + length)))
  const json = utf8.encode(mutatedJson(header, draw))
  const out = new Uint8Array(8 + json.length + bytes.length - 8 - length)
  new DataView(out.buffer).setBigUint64(0, BigInt(json.length), true)
  out.set(json, 8)
  out.set(bytes.subarray(8 + length), 8 + json.length)
  return out
}
/** The state of a checkpoint, another than was saved. */
function withOtherState(bytes: Bytes, draw: Draw): Bytes {
  const { tensors, metadata } = readSafetensors(bytes)
  const state = mutatedJson(JSON.parse(metadata.tabring!), draw)
  return writeSafetensors(tensors, { tabring: state })
}

const torchFile = (name: string) =>
  new Uint8Array(readFileSync(new URL(`../../golden/torch-files/${name}`, import.meta.url)))
const torchArchive = await ZipArchive.open(torchFile('tensors.pt'))
const torchStorages = await Promise.all(
  [...torchArchive.entries.keys()]
    .filter((name) => !name.endsWith('.pkl'))
    .map(async (name) => [name, await torchArchive.read(name)] as const),
)
const pickleOf = async (file: Bytes) => {
  const archive = await ZipArchive.open(file)
  return archive.read([...archive.entries.keys()].find((name) => name.endsWith('.pkl'))!)
}
/** Opcodes in any order, over a stack that has something of each kind. */
function opcodeSoup(draw: Draw): Bytes {
  const begin = Buffer.from(
    '\x80\x02ccollections\nOrderedDict\nq\x00ctorch._utils\n_rebuild_tensor_v2\nq\x01](}X\x01\0\0\0aK\x01',
    'latin1',
  )
  const ops = '()0122]}aeustRb\x81\x85\x86\x87\x8f\x90\x91\x92\x93\x94NK\x01h\x00h\x01q\x02h\x02Q.'
  const soup = Array.from({ length: draw.whole(1, 60) }, () => draw.pick([...ops]))
  return new Uint8Array(Buffer.concat([begin, Buffer.from(`${soup.join('')}.`, 'latin1')]))
}

/** Other numbers, letters and marks in the header of NumPy, with its size as it is. */
function withOtherNpyHeader(bytes: Bytes, draw: Draw): Bytes {
  const end = bytes.indexOf(0x0a)
  for (let i = 0; i < 3 && end > 12; i++)
    bytes[12 + draw.whole(0, end - 13)] = draw
      .pick([..."0123456789,()'<>|[]TFbiufcOUV "])
      .charCodeAt(0)
  return bytes
}

const parts = () => {
  const model = new Sequential(new Linear(3, 4), new BatchNorm1d(4), new Linear(4, 2))
  const optimizer = new AdamW(model.parameters(), { lr: 1e-3 })
  const scheduler = new StepLR(optimizer, 2)
  return { model, optimizer, scheduler, scaler: new GradScaler() }
}
const onDifferences = () => undefined

/** What an adapter's files are for. */
const base = () => new Sequential(new Linear(3, 4), new Linear(4, 2))
const adapterFiles = () => saveAdapter(getPeftModel(base(), { targetModules: ['0', '1'], r: 2 }))

/** Files in memory, one of which is the fuzzed one. */
function folderWith(name: string, contents: Uint8Array<ArrayBuffer>) {
  const files = new Map<string, Blob>([[name, new Blob([contents])]])
  return {
    read: async (one: string) => files.get(one),
    write: async (one: string, blob: Blob) => void files.set(one, blob),
    remove: async (one: string) => void files.delete(one),
    list: async () => [...files.keys()],
    clear: async () => files.clear(),
  }
}

/** What a server answers while `act` runs. */
async function servedAs<T>(body: Uint8Array<ArrayBuffer>, act: () => Promise<T>): Promise<T> {
  const { fetch } = globalThis
  globalThis.fetch = async () => new Response(body)
  try {
    return await act()
  } finally {
    globalThis.fetch = fetch
  }
}

const csvText =
  'name,length,width,class\na,1.5,2,cat\n"b ""x""",-3e2,0.25,dog\n c ,7,8,cat\n\n"d\ne",1,2,dog\n'
const english = 'All that is gold does not glitter, not all those who wander are lost. '.repeat(8)
const bytePairs = await bytePairTokenizer()
const smallTokenizer = await readTokenizer({
  tokenizer: goldenTokenizers.tokenizer,
  config: tokenizerConfig,
})

function keptRunText(): string {
  const texts = new Map<string, string>()
  const { runs } = comparing()
  rememberRuns(runs.slice(0, 1), [], {
    recall: (key) => texts.get(key) ?? '',
    remember: (key, text) => Boolean(texts.set(key, text)),
  })
  return [...texts.values()].find((text) => text.startsWith('{'))!
}

function runLogText(): string {
  const log = new RunLog()
  const id = 'ab'.repeat(8)
  log.add({ event: 'step', step: 2, stateHash: 'ff'.repeat(8) } as never)
  log.add({ event: 'assigned', step: 2, samples: [1, 2] } as never)
  log.add({ event: 'group', step: 0, members: [{ id, name: 'a' }], proof: undefined } as never)
  return log.text({ steps: 3 }, null as never)
}

/** Everything in `src` and `demos` that reads bytes which a stranger may have made. */
export const fileReaders: readonly FileReader[] = [
  {
    name: 'csv',
    form: 'text',
    seeds: () => [
      csvText,
      csvText.replaceAll(',', ';'),
      csvText.replaceAll('\n', '\r\n'),
      '1\t2\n3\t4\n',
      'a\n1\n2\n',
      'sep=;\r\na;b\n1,5;"2.000,5"\r\nNA;3\r4;5',
    ],
    async read(bytes, draw) {
      const table = await readCsv(
        new Blob([bytes]),
        'a.csv',
        draw.pick<CsvOptions>([
          {},
          { header: false },
          { decimal: ',', thousands: '.', missing: 0 },
          { missing: 'skip' },
        ]),
      )
      const label = draw.pick(table.columns)
      table.classes(label)
      return table.dataset(draw.isOneIn(2) ? { label } : { target: label })
    },
  },
  {
    name: 'idx',
    form: 'bytes',
    seeds: () => [
      idxFile([3, 4]),
      idxFile([2, 5, 5]),
      idxFile([2], undefined, 8),
      Uint8Array.of(0, 0, 13, 1, 0, 0, 0, 1, 1, 2, 3, 4),
      gzipped(idxFile([4, 4])),
      gzipBomb(),
    ],
    mutate: (bytes, draw) => (draw.isOneIn(2) ? gzipped(bytes) : bytes),
    async read(bytes) {
      const images = await readIdx(bytes, 'a')
      const labels = { shape: [images.shape[0] ?? 0], data: new Uint8Array(images.shape[0] ?? 0) }
      const set = new IdxDataset(images, labels)
      if (set.length > 0) set.get(0, { epoch: 0, seed: 0 } as never)
      return images
    },
  },
  {
    name: 'idx folder',
    form: 'bytes',
    seeds: () => Object.values(smallFolder(2, 2)),
    read(bytes, draw) {
      const files = smallFolder(2, 2)
      files[draw.pick(Object.keys(files))] = draw.isOneIn(3) ? gzipped(bytes) : bytes
      return loadIdxFolder(async (name) => files[name])
    },
  },
  {
    name: 'given idx file',
    form: 'bytes',
    seeds: () => [...Object.values(smallFolder(2, 2)), gzipped(idxFile([3, 28, 28])), gzipBomb()],
    read: (bytes, draw) => readIdxFile(new File([bytes], draw.pick(['train', 't10k', 'x', '']))),
  },
  {
    name: 'given idx data',
    form: 'bytes',
    seeds() {
      const [images, labels] = [idxFile([2, 28, 28]), idxFile([2])]
      return [
        packIdx({
          'train-images-idx3-ubyte': images,
          'train-labels-idx1-ubyte': labels,
          't10k-images-idx3-ubyte': gzipped(images),
          't10k-labels-idx1-ubyte': labels,
        }),
      ]
    },
    read: async (bytes) => loadIdxFolder(unpackIdx(bytes)),
  },
  {
    name: 'png',
    form: 'bytes',
    seeds: () => [
      ...golden.png.map(({ file }) => fromBase64(file)),
      pngBomb('IDAT'),
      pngBomb('iCCP'),
    ],
    repair: repairedPng,
    read: (bytes) => decodeImage(new Blob([bytes]), 'a.png'),
  },
  {
    name: 'jpeg',
    form: 'bytes',
    seeds: () => golden.jpeg.map(({ file }) => fromBase64(file)),
    read: forgetOrientation,
  },
  {
    name: 'given picture',
    form: 'bytes',
    seeds: () => [writePicture({ width: 8, height: 9, rgb: new Uint8Array(3 * 72) })],
    read: readPicture,
  },
  {
    name: 'given text',
    form: 'text',
    seeds: () => [english, '\ufeffä\r\n'.repeat(200)],
    read(bytes) {
      const text = decodeText(bytes)
      const data = readText(text)
      return readPrompt(text.slice(0, 40), data)
    },
  },
  {
    name: 'characters',
    form: 'text',
    seeds: () => [english],
    read(bytes) {
      const text = textOf(bytes)
      const tokenizer = CharTokenizer.of(text)
      if (tokenizer.decode(tokenizer.encode(text)) !== text)
        throw new Error('another text came back')
      return tokenizer.encode(english)
    },
  },
  {
    name: 'byte pairs',
    form: 'text',
    seeds: () => [english, 'ab'.repeat(400), '<|endoftext|> a'],
    read(bytes) {
      const text = textOf(bytes)
      const tokens = bytePairs.encode(text, { allowedSpecial: 'all' })
      if (bytePairs.decode(tokens) !== text) throw new Error('another text came back')
      return bytePairs.encode(text)
    },
  },
  {
    name: 'zip archive',
    form: 'bytes',
    seeds: () => Object.values(zips.files).map(fromBase64),
    async read(bytes) {
      const archive = await ZipArchive.open(bytes)
      return Promise.all([...archive.entries.keys()].map((name) => archive.read(name)))
    },
  },
  {
    name: 'file of torch.save',
    form: 'bytes',
    seeds: () => [
      ...['tensors-legacy.pt', 'values-legacy.pt', 'tensors.pt', 'program.pt'].map(torchFile),
      writeTorch({ a: { dtype: 'F32', shape: [2], data: new Float32Array(2) } }),
    ],
    read: (bytes, draw) =>
      draw.isOneIn(2) ? readTorch(bytes) : readTorch(new File([bytes], 'a.pth')),
  },
  {
    name: 'pickle of torch.save',
    form: 'bytes',
    codes: /^(data|config|shape)\./,
    seeds: () =>
      Promise.all(
        ['tensors.pt', 'values-2.pt', 'values-5.pt', 'checkpoint-with-args.pth'].map((name) =>
          pickleOf(torchFile(name)),
        ),
      ),
    mutate: (bytes, draw) => (draw.isOneIn(2) ? mutatedBytes(bytes, draw) : opcodeSoup(draw)),
    read(bytes, draw) {
      const file = writeZip([['tensors/data.pkl', bytes], ...torchStorages])
      return draw.isOneIn(2) ? readTorch(file) : loadModel(parts().model, file, { strict: false })
    },
  },
  {
    name: 'npy',
    form: 'bytes',
    seeds: () => [...numpy.cases, ...numpy.refused].map(({ file }) => fromBase64(file)),
    mutate: withOtherNpyHeader,
    async read(bytes) {
      const { shape, data } = await readNpy(bytes)
      if (shape.reduce((product, dim) => product * dim, 1) !== data.length)
        throw new Error('a shape of other data')
      return data
    },
  },
  {
    name: 'npz',
    form: 'bytes',
    seeds: () => [
      ...Object.values(numpy.npz).map(fromBase64),
      writeZip(numpy.cases.slice(0, 9).map(({ name, file }) => [`${name}.npy`, fromBase64(file)])),
    ],
    read: (bytes) => readNpz(bytes),
  },
  {
    name: 'safetensors',
    form: 'bytes',
    codes: /^(data|config|shape)\./,
    async seeds() {
      const { model } = parts()
      return [
        await saveModel(model),
        writeSafetensors([], {}),
        writeSafetensors(
          [['a', { dtype: 'F16', shape: [2], data: new Uint16Array(2) } as never]],
          {},
        ),
      ]
    },
    repair: repairedTensors,
    mutate: withOtherHeader,
    read: (bytes, draw) => loadModel(parts().model, bytes, { strict: draw.isOneIn(2) }),
  },
  {
    name: 'settings of an adapter',
    form: 'json',
    codes: /^(data|config)\./,
    seeds: async () => [(await adapterFiles())['adapter_config.json']],
    read: async (bytes) =>
      loadAdapter(base(), { ...(await adapterFiles()), 'adapter_config.json': bytes }),
  },
  {
    name: 'adapter',
    form: 'bytes',
    seeds: async () => [(await adapterFiles())['adapter_model.safetensors']],
    mutate: withOtherHeader,
    read: async (bytes) =>
      loadAdapter(base(), { ...(await adapterFiles()), 'adapter_model.safetensors': bytes }),
  },
  {
    name: 'file of a published model',
    form: 'bytes',
    codes: /^(data|config|shape)\./,
    seeds: async () => Object.values(await shardedFiles()),
    async read(bytes, draw) {
      const files = await shardedFiles()
      return loadPretrained(folderOf({ ...files, [draw.pick(Object.keys(files))]: bytes }))
    },
  },
  {
    name: 'settings of a published model',
    form: 'json',
    seeds: () => [JSON.stringify(smallConfig)],
    read: (bytes) => readModelConfig(parsed(bytes)),
  },
  {
    name: 'texts for a language model',
    form: 'text',
    seeds: () => [
      '{"text":"a"}\n{"text":"b"}\n',
      '{"prompt":"a","completion":"b"}\n',
      '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n',
      'prompt,completion\na,"b\nc"\n',
      '[{"text":"a"}]',
    ],
    async read(bytes, draw) {
      const end = draw.pick(['txt', 'jsonl', 'json', 'csv'])
      const table = await readTextTable(new File([bytes], `a.${end}`))
      const { train } = await tokenizeTexts(table, smallTokenizer, {
        blockSize: 8,
        packing: draw.isOneIn(2),
        assistantOnlyLoss: table.form === 'messages' && draw.isOneIn(2),
      })
      return train.get(0)
    },
  },
  {
    name: 'checkpoint',
    form: 'bytes',
    codes: /^(data|config|shape)\./,
    seeds: async () => [await packCheckpoint({ ...parts(), epoch: 3, cursor: { seed: 1 } })],
    mutate: (bytes, draw) => (draw.isOneIn(3) ? withOtherHeader : withOtherState)(bytes, draw),
    read: (bytes, draw) =>
      draw.isOneIn(4)
        ? unpackCheckpoint(bytes, {}, { strict: false })
        : unpackCheckpoint(bytes, parts(), { onDifferences }),
  },
  {
    name: 'manifest of checkpoints',
    form: 'json',
    async seeds() {
      const folder = folderWith('x', new Uint8Array())
      const score = { on: 'test', value: 1 }
      for (const label of ['step-1', 'step-2'])
        await putCheckpoint(folder as never, new Uint8Array(3), {
          label,
          isBest: true,
          keepLast: 2,
          score,
          run: 'r',
        })
      return [await (await folder.read(manifestName))!.text()]
    },
    async read(bytes, draw) {
      const folder = folderWith(manifestName, bytes) as never
      const name = 'step-1.safetensors'
      if (draw.isOneIn(2)) await removeCheckpoint(folder, name)
      else
        await putCheckpoint(folder, new Uint8Array(4), {
          label: 'step-3',
          isBest: false,
          keepLast: 1,
          score: { on: 'test', value: 2 },
        })
      return getCheckpoint(folder, draw.pick(['latest', 'best', name]))
    },
  },
  {
    name: 'listing of a folder',
    form: 'json',
    seeds: () => ['["a/1.png","a/2.png","b/ü 3.png","c/"]', '[]'],
    read: (bytes) => servedAs(bytes, () => listServed('http://localhost/data/')),
  },
  {
    name: 'settings of a run',
    form: 'json',
    seeds: () =>
      Object.keys(experiments.metas).map((demo) =>
        JSON.stringify({ ...experiments.defaultsOf(demo), seed: 3 }),
      ),
    read: (bytes) => experiments.parseTrainConfig(parsed(bytes)),
  },
  {
    name: 'settings in an address',
    form: 'text',
    seeds: () => [
      '?demo=digits&model=cnn&epochs=5&lr=0.1',
      '?given=abc&seed=x&ranks=9&transport=relay',
    ],
    read: (bytes) => checkDraft(draftFromQuery(textOf(bytes))),
  },
  {
    name: 'switches in an address',
    form: 'json',
    seeds: () => ['{"cpu":"auto","visibleDevices":"0"}', '{"debug":"2"}'],
    read: (bytes) => launcherSwitches(textOf(bytes)),
  },
  {
    name: 'runs that are kept',
    form: 'json',
    seeds: () => [keptRunText()],
    read(bytes) {
      const text = textOf(bytes)
      const id = Object(parsed(bytes)).id
      return recallRuns({
        recall: (key) => (key === 'tabring-runs' ? JSON.stringify([id]) : text),
        remember: () => true,
      })
    },
  },
  {
    name: 'log of a run',
    form: 'json',
    seeds: () => [runLogText()],
    read: (bytes) => readRunLog(textOf(bytes)),
  },
  {
    name: 'link of a room',
    form: 'text',
    seeds: () => [
      newRoomUrl('https://localhost:5173/'),
      `http://[::1]:1/x?y#room=${'ab'.repeat(16)}&key=${'A'.repeat(43)}`,
    ],
    read: (bytes) => parseRoomUrl('the link', textOf(bytes)),
  },
  {
    name: 'message of a server',
    form: 'json',
    seeds: () => [
      JSON.stringify({
        type: 'lobby',
        state: 'lobby',
        epoch: 0,
        maker: 'ab'.repeat(8),
        members: [{ ...infoOf('a'), id: 'ab'.repeat(8), rank: null, attached: true }],
      }),
      JSON.stringify({ type: 'stored', id: 1, answer: { kind: 'value', value: { counter: 1 } } }),
      JSON.stringify({
        type: 'ice',
        iceServers: [{ urls: ['stun:a'], username: 'u', credential: 'c' }],
      }),
    ],
    read: (bytes) => parseServerMessage(textOf(bytes)),
  },
  {
    name: 'message of a member',
    form: 'json',
    codes: /^peer\.protocol$/,
    seeds: () => {
      const roster = {
        ballot: 2,
        members: ['a'],
        before: [{ ballot: 1, members: ['a'] }],
        isRing: false,
      }
      return [
        textOf(encodeElasticMessage({ type: 'roster', roster })),
        textOf(
          encodeElasticMessage({
            type: 'report',
            ballot: 3,
            roster,
            proved: 1,
            hasState: true,
            step: 4,
            linked: ['a'],
            apart: [],
            former: null,
          }),
        ),
      ]
    },
    read: (bytes) => decodeElasticMessage(bytes),
  },
]

/** Parses the input of readers that take parsed JSON: another part of the page has parsed it, and reported what is none. */
function parsed(bytes: Bytes): unknown {
  try {
    return JSON.parse(textOf(bytes))
  } catch {
    return undefined
  }
}
