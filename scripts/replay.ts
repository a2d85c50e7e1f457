import { readFile } from 'node:fs/promises'
import { parseTrainConfig } from '../demos/experiments.ts'
import { ensureBuilt } from '../node/build.ts'
import { checkDataFolder } from '../node/data-folder.ts'
import { dataMount } from '../node/mounts.ts'
import { runCommand } from '../node/run-command.ts'
import { serve } from '../node/serve.ts'
import { parseOptions } from '../node/train/options.ts'
import { oneLine } from '../node/train/tab-group.ts'
import { trainInTabs } from '../node/train/tabs.ts'
import { launchForTraining } from '../node/training-browser.ts'
import { givenData, type TrainConfigInput } from '../src/trainer/settings/config.ts'
import { readRunLog } from '../src/trainer/watch/run-log.ts'
import { messageOf, TabringError } from '../src/util/errors.ts'

const usage = `Usage: npm run replay -- FILE [--data FOLDER] [--adapter auto|software]

Computes a logged run with exact again, in one tab, and compares the hash of each step.
Exits with 1 at the first step that differs.

FILE is what npm run train -- --exact --run-log FILE wrote, or "Download log" on the page.
`

async function main(argv: readonly string[], signal: AbortSignal): Promise<number> {
  const [path, ...flags] = argv
  if (path === undefined || argv.includes('--help') || argv.includes('-h')) {
    process.stdout.write(usage)
    return path === undefined ? 2 : 0
  }
  const refuse = (problem: string) => new TabringError('data.malformed', `${path}: ${problem}`)
  const text = await readFile(path, 'utf8').catch(() => {
    throw new TabringError('data.missing', `${path}: cannot read this file. Check its path.`)
  })
  const log = readRunLog(text)
  if (!log) throw refuse('it is no log of a run with exact. Use a file of --run-log.')
  const logged = parseTrainConfig(log.config as TrainConfigInput)
  if (logged.data === givenData)
    throw refuse('the data of that run was given by hand, and the log does not have it.')
  if (logged.resume)
    throw refuse('that run resumed from a checkpoint, and the log does not have it.')
  const parsed = parseOptions(['--demo', logged.demo, ...flags])
  if (parsed.kind === 'help') return 0
  const { options } = parsed
  const { dataFolder } = options
  if (dataFolder !== undefined) await checkDataFolder(dataFolder)
  const config = parseTrainConfig({
    ...(log.config as TrainConfigInput),
    ...(dataFolder !== undefined && { data: dataMount }),
    maxStepsPerSec: 0,
    checkpointEvery: undefined,
    saves: 'none',
  })

  const expected = new Map(log.states)
  let compared = 0
  let differs: string | undefined
  const stop = new AbortController()
  signal.addEventListener('abort', () => stop.abort(signal.reason))
  const served = await serve({
    root: await ensureBuilt({ log: (line) => process.stderr.write(`replay: ${line}\n`) }),
    port: 0,
    mounts: dataFolder === undefined ? undefined : { [dataMount]: dataFolder },
  })
  const note = (line: string) => process.stderr.write(`replay: ${line}\n`)
  const looks = { device: options.device, isHeaded: options.isHeaded, timesKernels: false }
  const browser = await launchForTraining(options.adapter, looks, note)
  try {
    const [{ result }] = await trainInTabs({
      browser,
      url: served.localUrl,
      worldSize: 1,
      config,
      timeoutMs: options.timeoutMs,
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
    if (differs === undefined) {
      const end = log.end ? `, and the end: ${result.paramHash}` : ''
      process.stdout.write(`replay: the same hashes before ${compared} steps${end}\n`)
      return 0
    }
  } catch (thrown) {
    if (differs === undefined) throw thrown
  } finally {
    await browser.close()
    await served.close()
  }
  process.stdout.write(`replay: ${differs}. Adapters of other kinds compute other bits.\n`)
  return 1
}

await runCommand('replay', main, {
  interrupted: () => 'nothing was compared to the end',
  failed: (thrown) => oneLine(messageOf(thrown)),
})
