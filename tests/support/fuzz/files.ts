import { TabringError } from '../../../src/util/errors.ts'
import { Draw } from '../simulation/draw.ts'
import type { Trace } from '../simulation/trace.ts'
import { type FileReader, fileReaders } from './file-readers.ts'
import { garbage, mutatedBytes, mutatedJson, mutatedText } from './mutate.ts'
import { Findings, type FuzzOutcome, type FuzzTarget, whereOf } from './target.ts'

const limits = {
  /** Of this process, on all its threads. units: ms. */
  cpuMs: 1000,
  /** What reading may take in memory, besides a multiple of the input. units: bytes. */
  sizeBytes: 64 * 2 ** 20,
  messageChars: 1000,
}

/** A large result takes longer. */
const bytesPerMs = 16_000

/** Of images and arrays, which a header may rightly make large. */
const sizeOf = (result: unknown): number => {
  const { data } = Object(result)
  return ArrayBuffer.isView(data) ? data.byteLength : 0
}

const seedsOf = new Map<FileReader, Promise<readonly Uint8Array<ArrayBuffer>[]>>()

function seeds(reader: FileReader): Promise<readonly Uint8Array<ArrayBuffer>[]> {
  const known = seedsOf.get(reader)
  if (known) return known
  const made = Promise.resolve(reader.seeds()).then((all) =>
    all.map((seed) =>
      typeof seed === 'string' ? new TextEncoder().encode(seed) : new Uint8Array(seed),
    ),
  )
  seedsOf.set(reader, made)
  return made
}

/** A valid input made wrong; at times left as it is, so that readers are read through. */
async function drawInput(draw: Draw, reader: FileReader): Promise<Uint8Array<ArrayBuffer>> {
  const all = await seeds(reader)
  const seed = draw.pick(all)
  if (draw.isOneIn(40)) return seed.slice()
  if (draw.isOneIn(60)) return garbage(draw, 300)
  if (reader.mutate && draw.isOneIn(2)) return reader.mutate(seed.slice(), draw)
  const text = () => new TextDecoder().decode(seed)
  const encode = (mutated: string) => new TextEncoder().encode(mutated)
  if (reader.form === 'json' && !draw.isOneIn(4))
    return encode(mutatedJson(JSON.parse(text()), draw))
  if (reader.form !== 'bytes' && !draw.isOneIn(6)) return encode(mutatedText(text(), draw))
  const mutated = mutatedBytes(seed, draw, all)
  return reader.repair && draw.isOneIn(2) ? reader.repair(mutated) : mutated
}

/** One mutated file, read by one reader. */
async function run(seed: number, trace?: Trace): Promise<FuzzOutcome> {
  const findings = new Findings(trace)
  const draw = new Draw(seed)
  const reader = draw.pick(fileReaders)
  const input = await drawInput(draw, reader)
  findings.count('files')
  findings.note(`${reader.name}, ${input.length} bytes, as text and in base64:`)
  findings.note(JSON.stringify(new TextDecoder().decode(input.subarray(0, 2000))))
  findings.note(Buffer.from(input.subarray(0, 100_000)).toString('base64'))

  const violate = (text: string) => findings.violate(`${reader.name}: ${text}`)
  const { arrayBuffers } = process.memoryUsage()
  const began = process.cpuUsage()
  let resultBytes = 0
  try {
    resultBytes = sizeOf(await reader.read(input, draw))
    findings.count('read')
  } catch (thrown) {
    findings.count('refused')
    const { codes = /^(data|config)\./ } = reader
    if (!(thrown instanceof TabringError)) violate(`not an error of Tabring: ${whereOf(thrown)}`)
    else if (!codes.test(thrown.code))
      violate(`the error has the code ${thrown.code}: ${thrown.message}`)
    else if (thrown.message.length > limits.messageChars)
      violate(`the error has ${thrown.message.length} characters: ${thrown.message.slice(0, 200)}`)
    findings.note(String(thrown))
  }
  const { user, system } = process.cpuUsage(began)
  const grownBytes = process.memoryUsage().arrayBuffers - arrayBuffers
  if ((user + system) / 1000 > limits.cpuMs + resultBytes / bytesPerMs)
    violate(`took more than ${limits.cpuMs} ms of CPU time`)
  const maxBytes = limits.sizeBytes + 200 * input.length + 16 * resultBytes
  if (grownBytes > maxBytes)
    violate(`took more than ${maxBytes} bytes for ${input.length} bytes of input`)
  return findings
}

export const files: FuzzTarget = {
  name: 'files',
  about: `mutated files, texts and JSON for ${fileReaders.length} readers of what strangers may have made`,
  run,
}
