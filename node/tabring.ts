import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Command, CommanderError } from 'commander'
import { messageOf, TabringError } from '../src/util/errors.ts'
import { usageProblem } from './command-line.ts'
import { docsText } from './docs.ts'
import { failureText } from './launch/failure-text.ts'
import { launch } from './launch/launch.ts'
import { moduleCommand } from './launch/module.ts'
import { parseLaunch } from './launch/options.ts'
import { runCommand } from './run-command.ts'
import { Screen } from './screen.ts'

/** `npx tabring …`: a torchrun for tabs. */

const examples = `
Examples:
  npx tabring run --nproc-per-node 4 train.ts
  npx tabring launch --nproc_per_node=2 train.ts --lr 0.1
  npx tabring docs get-started

Run npx tabring <command> --help for more.
`

/** The package's own: this file is in node/ in the repository, and in dist-lib/launch/ in the package. */
function version(): string {
  const path = ['..', '../..']
    .map((up) => join(import.meta.dirname, up, 'package.json'))
    .find((path) => existsSync(path))
  return path === undefined ? 'unknown' : JSON.parse(readFileSync(path, 'utf8')).version
}

/** Answers what is none of the commands: help, or an error with the nearest name. */
function answerOther(argv: readonly string[]): string {
  let text = ''
  const command = new Command('tabring')
    .usage('<command> [options]')
    .helpOption('-h, --help', 'show this help')
    .version(version(), '-V, --version', 'show the version')
    .addHelpText('after', examples)
    .exitOverride()
    .configureOutput({
      writeOut: (part) => {
        text += part
      },
      writeErr: () => undefined,
    })
  command
    .command('run')
    .description(
      'run a TypeScript module in N browser tabs, each a rank, as torchrun does with processes',
    )
  command
    .command('launch')
    .description(
      'the same for scripts that expect their local rank as an argument, as from torch.distributed.launch',
    )
  command.command('docs').description('list the pages of the documentation, or print one')
  command.helpCommand('help [command]', 'show the help of a command')
  try {
    command.parse(argv.length > 0 ? argv : ['--help'], { from: 'user' })
  } catch (thrown) {
    if (thrown instanceof CommanderError && /^commander\.(help|version)/.test(thrown.code))
      return text
    const isModule = /\.[cm]?[jt]sx?$/.test(argv[0])
    const hint = isModule ? ` Did you mean npx tabring run ${argv[0]}?` : ''
    throw new TabringError(
      'config.invalid',
      `${usageProblem(thrown)}${hint} See npx tabring --help.`,
      { cause: thrown },
    )
  }
  return text
}

/** Returns the exit code, after everything that was started has ended. */
async function main(argv: readonly string[], signal: AbortSignal): Promise<number> {
  const [first, ...rest] = argv[0] === 'help' ? [argv[1], '--help'] : argv
  if (first === 'docs') {
    process.stdout.write(docsText(rest))
    return 0
  }
  if (first !== 'run' && first !== 'launch') {
    process.stdout.write(answerOther(argv))
    return 0
  }
  const parsed = parseLaunch(first, rest)
  if (parsed.kind === 'help') {
    process.stdout.write(parsed.text)
    return 0
  }
  const screen = new Screen('tabring', process.stdout, process.stderr)
  const outcome = await launch(moduleCommand(parsed.options, screen, signal), signal)
  if (!outcome.failure) return 0
  process.stderr.write(`tabring: ${failureText(outcome)}\n`)
  return 1
}

await runCommand('tabring', main, {
  interrupted: () => 'every tab is closed',
  failed: messageOf,
})
