import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseTrainConfig } from '../demos/experiments.ts'
import { chromiumTabs } from '../node/chromium-tabs.ts'
import { checkDataFolder } from '../node/data-folder.ts'
import { dataMount } from '../node/mounts.ts'
import { runCommand } from '../node/run-command.ts'
import { parseOptions } from '../node/train/options.ts'
import { oneLine } from '../node/train/tab-group.ts'
import { trainInTabs } from '../node/train/tabs.ts'
import { openTrainingHost } from '../node/training-host.ts'
import { secretPrefix, type WritableFolders } from '../node/writable-folders.ts'
import { readSafetensors } from '../src/data/safetensors.ts'
import { load } from '../src/data/saved-tree.ts'
import type { StateDict } from '../src/nn/module.ts'
import { givenData, type TrainConfigInput } from '../src/trainer/settings/config.ts'
import { type RunLogFile, readRunLog, runLogIn, stepOf } from '../src/trainer/watch/run-log.ts'
import { messageOf, TabringError } from '../src/util/errors.ts'

const usage = `Usage: npm run replay -- FILE [--data FOLDER] [--adapter auto|software] [--device DEVICE]

Computes a logged run with exact again, in one tab, and compares the hash of each step.
Exits with 1 at the first step that differs. A run that failed or was stopped is computed as far as its log goes.

FILE is what npm run train -- --exact --run-log FILE wrote, or "Download log" on the page; or a checkpoint
of a run with exact, which is computed up to its step and compared with its weights.
`

async function main(argv: readonly string[], signal: AbortSignal): Promise<number> {
  const [path, ...flags] = argv
  if (path === undefined || argv.includes('--help') || argv.includes('-h')) {
    process.stdout.write(usage)
    return path === undefined ? 2 : 0
  }
  const refuse = (problem: string) => new TabringError('data.malformed', `${path}: ${problem}`)
  const bytes = await readFile(path).catch(() => {
    throw new TabringError('data.missing', `${path}: cannot read this file. Check its path.`)
  })
  const { log, saved } = contentsOf(new Uint8Array(bytes))
  if (!log)
    throw refuse(
      'it is no log of a run with exact, and no checkpoint of one. Use a file of --run-log.',
    )
  const logged = parseTrainConfig(log.config as TrainConfigInput)
  if (logged.data === givenData)
    throw refuse('the data of that run was given by hand, and the log does not have it.')
  if (logged.resume)
    throw refuse('that run resumed from a checkpoint, and the log does not have it.')
  const stoppedAt = saved || log.end ? undefined : stepOf(log.states)
  if (stoppedAt === 0)
    throw refuse(
      'that run stopped within its first step, so the log has no hash. Use the log of a longer one.',
    )
  const parsed = parseOptions(['--demo', logged.demo, ...flags])
  if (parsed.kind === 'help') return 0
  const { options } = parsed
  const { dataFolder } = options
  if (dataFolder !== undefined) await checkDataFolder(dataFolder)
  const steps = saved?.step ?? stoppedAt
  const config = parseTrainConfig({
    ...(log.config as TrainConfigInput),
    ...(dataFolder !== undefined && { data: dataMount }),
    maxStepsPerSec: 0,
    changes: JSON.stringify(log.changes),
    checkpointEvery: undefined,
    saves: 'none',
    ...(steps !== undefined && { steps }),
  })

  const stopped =
    stoppedAt === undefined
      ? ''
      : `replay: the log is of a run that did not reach its end: it stopped after step ${stoppedAt}\n`
  const expected = new Map(log.states)
  let compared = 0
  let differs: string | undefined
  const stop = new AbortController()
  signal.addEventListener('abort', () => stop.abort(signal.reason))
  const note = (line: string) => process.stderr.write(`replay: ${line}\n`)
  const { adapter, device, headed: isHeaded = false } = options
  const mounts = dataFolder === undefined ? undefined : { [dataMount]: dataFolder }
  const writable: WritableFolders = {}
  const host = await openTrainingHost({ adapter, device, isHeaded, note, mounts, writable })
  const folder = await mkdtemp(join(tmpdir(), 'tabring-replay-'))
  const out = secretPrefix('out')
  writable[out] = folder
  const weights = 'weights.safetensors'
  try {
    const [{ result }] = await trainInTabs({
      browser: chromiumTabs(host.browser),
      url: host.served.localUrl,
      worldSize: 1,
      config,
      timeoutMs: options.timeoutMs,
      switches: options.switches,
      saveTo: saved && `${out}${weights}`,
      signal: stop.signal,
      onEvent: (event) => {
        if (event.event !== 'step' || differs !== undefined) return
        const { step, totalSteps, stateHash } = event
        const hash = expected.get(step - 1)
        if (hash === undefined) return
        if (hash !== stateHash) {
          differs = `the state after step ${step - 1} hashes to ${stateHash} here, and to ${hash} in the log`
          stop.abort(new Error(differs))
        }
        compared++
        if (step % 100 === 0) note(`step ${step} of ${totalSteps}`)
      },
    })
    if (log.end && log.end.paramHash !== result.paramHash)
      differs ??= `the last step ends with ${result.paramHash} here, and with ${log.end.paramHash} in the log`
    if (saved) {
      const other = differentTensor(saved.model, await readFile(join(folder, weights)))
      if (other) differs ??= `"${other}" after step ${saved.step} has other bits in the checkpoint`
    }
    if (differs === undefined) {
      const end = log.end || saved ? `, and the end: ${result.paramHash}` : ''
      process.stdout.write(
        `replay: the same hash before each of ${compared} steps${end}\n${stopped}`,
      )
      return 0
    }
  } catch (thrown) {
    if (differs === undefined) throw thrown
  } finally {
    await host.close()
    await rm(folder, { recursive: true, force: true })
  }
  process.stdout.write(
    `replay: ${differs}. Adapters of other kinds compute other bits.\n${stopped}`,
  )
  for (const { step, text } of log.unlike)
    process.stdout.write(`replay: the log says, after step ${step}: ${text}\n`)
  return 1
}

/** The log in a file, and of a checkpoint what it comes to. */
function contentsOf(bytes: Uint8Array<ArrayBuffer>): {
  log?: RunLogFile
  saved?: { step: number; model: StateDict }
} {
  const log = readRunLog(new TextDecoder().decode(bytes))
  if (log) return { log }
  try {
    const { log, step, model } = load(bytes) as Record<string, unknown>
    return { log: runLogIn(log), saved: { step: Number(step), model: model as StateDict } }
  } catch {
    return {}
  }
}

/** The first tensor whose bits differ from those in the file. */
function differentTensor(saved: StateDict, file: Uint8Array): string | undefined {
  const { tensors } = readSafetensors(file)
  return Object.keys(saved).find((key) => {
    const computed = tensors.get(key)
    return !computed || Buffer.compare(bytesOf(saved[key].data), bytesOf(computed.data)) !== 0
  })
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

await runCommand('replay', main, {
  interrupted: () => 'nothing was compared to the end',
  failed: (thrown) => oneLine(messageOf(thrown)),
})
