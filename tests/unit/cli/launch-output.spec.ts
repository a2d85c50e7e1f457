import { lstat, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { failureText } from '../../../node/launch/failure-text.ts'
import { LogFiles } from '../../../node/launch/log-files.ts'
import {
  pollRendezvous,
  readRendezvous,
  writeRendezvous,
} from '../../../node/launch/rendezvous-file.ts'
import { sourceLines } from '../../../node/launch/source-lines.ts'
import { Screen } from '../../../node/screen.ts'

/** What a launcher shows and writes. */

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-'))
})
afterEach(() => rm(folder, { recursive: true }))

class Report {
  text = ''
  write(text: string): void {
    this.text += text
  }
}

describe('the screen', () => {
  test('each line has its rank in front, on its own stream', () => {
    const [out, err] = [new Report(), new Report()]
    const screen = new Screen('tabring', out, err)
    screen.say(2, 'stdout', 'one\ntwo')
    screen.say(0, 'stderr', 'careful')
    screen.note('a\nb')
    expect(out.text).toBe('[2]: one\n[2]: two\n')
    expect(err.text).toBe('[0]: careful\ntabring: a\ntabring: b\n')
  })

  test('progress is a line every five seconds where there is no terminal, and the last one', () => {
    const out = new Report()
    let nowMs = 0
    const screen = new Screen('tabring', out, out, () => nowMs)
    for (let step = 1; step <= 8; step++) {
      screen.progress({ step, totalSteps: 8, epoch: 0, epochs: 2, loss: 0.5, samples: 64 })
      nowMs += 1000
    }
    expect(out.text).toBe(
      [
        'step 1/8  epoch 1/2  loss 0.5000',
        'step 6/8  epoch 1/2  loss 0.5000  64 samples/s',
        'step 8/8  epoch 1/2  loss 0.5000  64 samples/s',
        '',
      ].join('\n'),
    )
  })

  test('only reported figures are shown; NaN is "not a number"', () => {
    const out = new Report()
    new Screen('tabring', out, out).progress({ step: 1, totalSteps: 1, loss: JSON.parse('null') })
    new Screen('tabring', out, out).progress({ step: 1, totalSteps: 1 })
    expect(out.text).toBe('step 1/1  loss not a number\nstep 1/1\n')
  })
})

describe('log files', () => {
  const read = (rank: number, stream: string) =>
    readFile(join(folder, 'logs', String(rank), `${stream}.log`), 'utf8')

  test('everything goes there and is shown, without flags', async () => {
    const logs = new LogFiles(join(folder, 'logs'))
    logs.open([4])
    expect(logs.write(4, 0, 'stdout', '\u001b[31mred\u001b[0m')).toBe(true)
    logs.close()
    expect([await read(4, 'stdout'), await read(4, 'stderr')]).toEqual(['red\n', ''])
  })

  test('--redirects 1: standard output goes there alone; the other is shown alone', async () => {
    const logs = new LogFiles(join(folder, 'logs'), undefined, 1)
    logs.open([0])
    expect(logs.write(0, 0, 'stdout', 'a')).toBe(false)
    expect(logs.write(0, 0, 'stderr', 'b')).toBe(true)
    logs.close()
    expect([await read(0, 'stdout'), await read(0, 'stderr')]).toEqual(['a\n', ''])
  })

  test('--tee goes before --redirects, by local rank', async () => {
    const logs = new LogFiles(join(folder, 'logs'), { 1: 3 }, 3)
    expect(logs.write(5, 1, 'stdout', 'both')).toBe(true)
    expect(logs.write(4, 0, 'stdout', 'file')).toBe(false)
    logs.close()
    expect([await read(5, 'stdout'), await read(4, 'stdout')]).toEqual(['both\n', 'file\n'])
  })

  test('--tee 2 alone: standard output is shown and not written', () => {
    const logs = new LogFiles(join(folder, 'logs'), 2)
    expect([logs.write(0, 0, 'stdout', 'a'), logs.write(0, 0, 'stderr', 'b')]).toEqual([true, true])
    logs.close()
    return expect(read(0, 'stdout')).rejects.toThrow('ENOENT')
  })

  test('what a full disk refuses is shown, noted once and remembered', async () => {
    await mkdir(join(folder, 'logs', '0'), { recursive: true })
    await symlink('/dev/full', join(folder, 'logs', '0', 'stdout.log'))
    const notes: string[] = []
    const logs = new LogFiles(join(folder, 'logs'), undefined, 3, (line) => notes.push(line))
    expect([logs.write(0, 0, 'stdout', 'a'), logs.write(0, 0, 'stderr', 'b')]).toEqual([
      true,
      false,
    ])
    expect(logs.write(0, 0, 'stdout', 'c')).toBe(true)
    expect(logs.problem).toContain('ENOSPC')
    expect(notes).toEqual([
      `--log-dir: lines are missing in the files from now on: ${logs.problem}`,
    ])
    logs.close()
  })

  test('a folder that cannot be made is an error with its path', async () => {
    await writeFile(join(folder, 'file'), '')
    const logs = new LogFiles(join(folder, 'file'))
    expect(() => logs.open([0])).toThrow(/--log-dir: cannot write to .*stdout\.log: /)
  })
})

test('failureText names the rank that failed', () => {
  const failure = {
    rank: 1,
    host: 'beta',
    code: '',
    text: 'Error: boom\n    at main (train.ts:3:9)',
  }
  expect(failureText({ failure, restarts: 0, isShared: false })).toBe(
    'rank 1 failed first:\nError: boom\n    at main (train.ts:3:9)',
  )
  expect(failureText({ failure, restarts: 2, isShared: true })).toContain(
    'rank 1 on beta failed first, after 2 restarts:\n',
  )
  const browser = { ...failure, rank: null, text: 'browser: gone.' }
  expect(failureText({ failure: browser, restarts: 0, isShared: false })).toBe('browser: gone.')
  expect(failureText({ failure: browser, restarts: 1, isShared: true })).toBe(
    'after 1 restart: on beta: browser: gone.',
  )
})

test('places in built files become places in their sources', async () => {
  const map = {
    version: 3,
    sources: ['../src/train.ts'],
    names: [],
    // Line 1, column 0 is line 1; line 2, column 4 is line 8, column 2.
    mappings: 'AAAA;IAOE',
  }
  const root = join(folder, 'built')
  await mkdir(root)
  await writeFile(join(root, 'a.js.map'), JSON.stringify(map))
  const toSource = sourceLines(root, folder)
  expect(
    toSource(
      [
        'Error: x',
        '    at main (http://localhost:29500/a.js:2:5)',
        '    at async http://localhost:29500/rank.js:3:4',
        '    at other (http://localhost:29500/none.js:1:1)',
      ].join('\n'),
    ),
  ).toBe(
    [
      'Error: x',
      '    at main (src/train.ts:8:3)',
      '    at other (http://localhost:29500/none.js:1:1)',
    ].join('\n'),
  )
  const odd = 'GET http://a.b/%zz/x.js:1:2'
  expect(toSource(odd)).toBe(odd)
  expect(toSource('see http://example.org/page for more')).toBe(
    'see http://example.org/page for more',
  )
})

describe('the file by which launchers find each other', () => {
  const syncPoint = { host: 'alpha', port: 29500, key: 'k'.repeat(20), pin: 'sha256/x' as const }

  test('a launcher that waits reads it, its owner alone may, and it is removed at the end', async () => {
    const path = join(folder, 'runs', 'job.json')
    const waiting = readRendezvous(path, 10_000, new AbortController().signal)
    const remove = await writeRendezvous(path, syncPoint)
    expect(await waiting).toEqual(syncPoint)
    expect((await stat(path)).mode & 0o077).toBe(0)
    await remove()
    await expect(stat(path)).rejects.toThrow('ENOENT')
  })

  test('a link or file that another left in a shared folder is neither followed nor kept', async () => {
    const path = join(folder, 'shared.json')
    const elsewhere = join(folder, 'elsewhere.json')
    await writeFile(elsewhere, '')
    await symlink(elsewhere, path)
    await writeFile(`${path}.${process.pid}.tmp`, 'of another', { mode: 0o666 })
    const remove = await writeRendezvous(path, syncPoint)
    expect(await readFile(elsewhere, 'utf8')).toBe('')
    expect((await lstat(path)).isFile()).toBe(true)
    expect((await stat(path)).mode & 0o077).toBe(0)
    expect(await pollRendezvous(path)).toEqual(syncPoint)
    await remove()
    expect(await pollRendezvous(path)).toBeNull()
  })

  test('a file of another user is refused', async () => {
    const path = join(folder, 'foreign.json')
    await writeRendezvous(path, syncPoint)
    vi.spyOn(process, 'getuid').mockReturnValue((await stat(path)).uid + 1)
    await expect(pollRendezvous(path)).rejects.toThrow('who could redirect the run, not to you')
    vi.restoreAllMocks()
  })

  test('one that does not come is named with what to do', async () => {
    const path = join(folder, 'none.json')
    await expect(readRendezvous(path, 10, new AbortController().signal)).rejects.toThrow(
      `the launcher of rank 0 did not write ${path} within 0.01 s`,
    )
  })
})
