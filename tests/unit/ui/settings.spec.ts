import { describe, expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { wrongVariants } from '../../../src/kernels/named-variants.ts'
import { experimentLink, inviteLink } from '../../../src/ui/experiment/experiment-link.ts'
import * as addresses from '../../../src/ui/settings/address-notes.ts'
import { ranksOf } from '../../../src/ui/settings/draft.ts'
import { maxRanks, settings } from '../../../src/ui/settings/list.ts'
import { checkedDraft } from '../../../src/ui/state/room-facts.ts'
import type { Snapshot } from '../../../src/ui/state/snapshot.ts'
import { inside, makeResult, makeSnapshot, play, training } from '../../support/page-states.ts'
import {
  checkDraft,
  choicesOf,
  defaultDraft,
  defaultDraftOf,
  describeSetting,
  draftFromQuery,
  fittingBatch,
  queryOf,
  withSetting,
} from '../../support/ui-with-experiments.ts'

describe('ranks in one tab', () => {
  it('are a setting of the tab: in its address, not in the run', () => {
    const draft = draftFromQuery('?ranks=3')
    expect(ranksOf(draft)).toBe(3)
    expect(queryOf(draft)).toBe('?ranks=3')
    const { config, errors } = checkDraft(draft, 3)
    expect(errors).toEqual({})
    expect(config).not.toHaveProperty('ranks')
  })

  it.each([
    ['9', ', not 9'],
    ['-1', ', not -1'],
    ['2.5', ', not 2.5'],
    ['many', ', not "many"'],
    ['', ''],
    ['1e0', ', not 1e0'],
  ])('%j is an error, and counts as one', (ranks, instead) => {
    const draft = { ...defaultDraft, ranks }
    expect(ranksOf(draft)).toBe(1)
    expect(checkDraft(draft).errors.ranks).toBe(`Enter 0 to ${maxRanks}${instead}`)
  })
})

describe('links', () => {
  const canStartAs = (snapshot: Snapshot) => checkedDraft(snapshot).errors.data
  const searchOf = (link: string) => new URL(link).search

  it('the room has the demo that its maker has on show, and no other setting', () => {
    const maker = inside(2)
    expect(inviteLink(maker)).toBe(makeSnapshot().invite)
    const other = play(
      maker,
      { type: 'setting', key: 'demo', value: 'text' },
      { type: 'setting', key: 'lr', value: '0.5' },
    )
    expect(searchOf(inviteLink(other))).toBe('?demo=text')
    expect(inviteLink(other)).toBe(makeSnapshot().invite.replace('#', '?demo=text#'))
    const back = play(other, { type: 'setting', key: 'demo', value: 'digits' })
    expect(searchOf(inviteLink(back))).toBe('')
    // What is no demo is nobody's to see.
    expect(searchOf(inviteLink(play(maker, { type: 'setting', key: 'demo', value: 'x' })))).toBe('')
  })

  it('what was given on this tab is in the link only as text, and resumed runs are not', () => {
    const given = play(
      inside(1),
      { type: 'setting', key: 'demo', value: 'playground' },
      { type: 'setting', key: 'data', value: 'given' },
      { type: 'setting', key: 'resume', value: 'latest' },
    )
    expect(canStartAs(given)).toBe('No data yet: draw at least 10 points')
    expect(searchOf(experimentLink(given))).toBe('?demo=playground')
    const drawn = play(given, { type: 'given', demo: 'playground', text: 'AbC-_9' })
    expect(canStartAs(drawn)).toBeUndefined()
    expect(searchOf(experimentLink(drawn))).toBe('?demo=playground&given=AbC-_9')
    expect(draftFromQuery('?demo=playground&given=AbC-_9').data).toBe('given')
    const many = play(given, { type: 'given', demo: 'playground', text: null })
    expect(canStartAs(many)).toBeUndefined()
    expect(searchOf(experimentLink(many))).toBe('?demo=playground')
    expect(canStartAs(play(drawn, { type: 'givenBack', demo: 'playground' }))).toBeDefined()
    for (const demo of ['constructor', '__proto__'])
      expect(queryOf({ ...given.draft, demo }, given.given)).not.toContain('given=')
    // What one demo was given is no other's.
    const other = play(
      drawn,
      { type: 'setting', key: 'demo', value: 'text' },
      { type: 'setting', key: 'data', value: 'given' },
    )
    expect(canStartAs(other)).toContain('paste a text')
    expect(searchOf(experimentLink(other))).toBe('?demo=text')
  })

  it("a guest's has the demo of the run, whatever the guest's own address says", () => {
    const guest = training(3, 5, 1, { config: { demo: 'playground', maxStepsPerSec: 60 } })
    expect(searchOf(inviteLink(guest))).toBe('?demo=playground')
    expect(searchOf(experimentLink(guest))).toBe('?demo=playground&epochs=3')
  })
})

describe('the pace', () => {
  it('is what people can follow where a run would be over at once, and full speed elsewhere', () => {
    expect(checkDraft(defaultDraftOf('playground')).config?.maxStepsPerSec).toBe(60)
    expect(checkDraft(defaultDraftOf('digits')).config?.maxStepsPerSec).toBeUndefined()
  })

  it('full speed and another pace are in the link', () => {
    for (const [maxStepsPerSec, wanted] of [
      ['', undefined],
      ['5', 5],
    ] as const) {
      const query = queryOf({ ...defaultDraftOf('playground'), maxStepsPerSec })
      expect(query).toBe(`?demo=playground&maxStepsPerSec=${maxStepsPerSec}`)
      expect(checkDraft(draftFromQuery(query)).config?.maxStepsPerSec).toBe(wanted)
    }
  })
})

describe('the list of settings', () => {
  it("offers the schema's choices and no others", () => {
    for (const setting of settings) {
      const { key } = setting
      if (key === 'transport') continue
      for (const [value] of choicesOf(setting, defaultDraft))
        expect(() => parseTrainConfig({ [key]: value })).not.toThrow()
    }
  })

  it('describes every value of a run', () => {
    const config = parseTrainConfig({ model: 'cnn' })
    const words = settings.map((setting) => describeSetting(setting, config))
    expect(words).toContain('0.003')
    expect(words).toContain('drawn digits (built in)')
    expect(words.join(' ')).not.toMatch(/undefined/)
  })
})

describe('the address', () => {
  const unusedIn = (address: string, ranks?: number, run: Snapshot['run'] = null) =>
    addresses.unusedIn(address, settings, ranks, wrongVariants, run)

  it('lists what the page does not use of it', () => {
    expect(unusedIn('?demo=playground&lr=0.1&debug=2&given=a&launcher={}#key=abc')).toEqual([])
    expect(unusedIn('?lr=&epoch=3&lr2=&seed=1&seed=2#nonsense')).toEqual([
      'In the address, lr is empty; its default is used.',
      'In the address, epoch is not a setting.',
      'In the address, lr2 is not a setting.',
      'In the address, seed appears 2 times; the first counts.',
      'In the address, #nonsense is not a link to a room; this is a new one.',
    ])
  })

  it('says which settings do nothing beside the others', () => {
    expect(unusedIn('?steps=5&exact=true&virtualWorkers=3&strategy=ddp&hashEvery=5')).toEqual([])
    expect(
      unusedIn('?virtualWorkers=3&steps=5&epochs=2&strategy=alone&bucketCapMb=3&given=a'),
    ).toEqual([
      'In the address, virtualWorkers has no effect: only exact=true has them.',
      'In the address, epochs has no effect: steps says how long to train.',
      'In the address, bucketCapMb has no effect: strategy=alone exchanges nothing.',
      'In the address, given has no effect: only demo=playground reads it.',
    ])
  })

  it('says which variants of ops there are not', () => {
    expect(unusedIn('?variant=')).toEqual([
      'In the address, variant is empty; its default is used.',
    ])
    expect(unusedIn('?variant=conv2d:naive,__proto__:a,conv2d:fast,adam:naive')).toEqual([
      'In the address, variant names conv2d again; the last counts.',
      'In the address, variant names __proto__, which is no op.',
      expect.stringMatching(
        /^In the address, variant of conv2d must be naive, [-\w, ]+, not fast\.$/,
      ),
    ])
    const ended = (...ops: string[]) => {
      const result = makeResult(1)
      const calls = ops.map((name) => [`${name} f32[2,2] {}`, 'naive'])
      Object.assign(result.record.variants, Object.fromEntries(calls))
      return play(training(1, 9), { type: 'finished', result, bytesSent: 0 }).run
    }
    const address = '?variant=matmul:naive,topK:naive'
    for (const run of [null, training(1, 9).run, ended(), ended('matmul', 'topK')])
      expect(unusedIn(address, 1, run)).toEqual([])
    expect(unusedIn(address, 1, ended('matmul', 'topKCorrect'))).toEqual([
      'In the address, variant names topK, which the step of the last run does not have.',
    ])
    expect(addresses.namesVariants('?demo=text&variant=a:b')).toBe(true)
    expect(addresses.namesVariants('?variant=#variant=a:b')).toBe(false)
  })

  it('says that a learning rate of 0, or far above what trains, is useless', () => {
    const { uselessRate } = addresses
    expect(uselessRate('0')).toEqual(['A learning rate of 0 trains nothing.'])
    expect(uselessRate('1e5')).toEqual(['A learning rate of 1e5 is far above what trains.'])
    for (const right of ['', '0.1', '1e-7', '-1', 'fast']) expect(uselessRate(right)).toEqual([])
  })

  it('says that switches of links do nothing for the ranks that there are', () => {
    expect(unusedIn('?stallRank=0&delayMs=5')).toEqual([
      'In the address, stallRank has no effect: one rank sends to nobody.',
      'In the address, delayMs has no effect: one rank sends to nobody.',
    ])
    expect(unusedIn('?stallRank=1&drop=0.1', 2)).toEqual([])
    expect(unusedIn('?stallRank=2', 2)).toEqual([
      'In the address, stallRank has no effect: ranks are numbered from 0 to 1.',
    ])
  })

  it('refuses demos, data and checkpoints that do not exist', () => {
    const errorsOf = (query: string) => checkDraft(draftFromQuery(query)).errors
    for (const name of ['__proto__', 'constructor'])
      expect(errorsOf(`?demo=${name}`).demo).toMatch(/^Choose digits/)
    expect(errorsOf('?data=nothing').data).toContain('an address with a slash')
    expect(errorsOf('?data=/nothing').data).toBeUndefined()
    expect(errorsOf('?resume=yesterday').resume).toContain('latest, best or a checkpoint')
    expect(errorsOf('?resume=step-8.safetensors').resume).toBeUndefined()
  })

  it('names only what differs from the defaults', () => {
    expect(queryOf(defaultDraft)).toBe('')
    expect(queryOf({ ...defaultDraft, model: 'cnn', epochs: '5' })).toBe('?model=cnn&epochs=5')
  })

  it('gives the draft again', () => {
    const query = '?model=cnn&data=%2Fdata%2Fmnist%2F&epochs=5&lr=0.01&steps=20&transport=webrtc'
    expect(queryOf(draftFromQuery(query))).toBe(query)
  })

  it('ignores what it does not know, and keeps wrong values to show them', () => {
    const draft = draftFromQuery('?utm=1&epochs=none')
    expect(Object.keys(draft)).toEqual(Object.keys(defaultDraft))
    expect(checkDraft(draft).errors.epochs).toBe('Enter a number, not "none"')
  })
})

describe('checking', () => {
  it('the defaults are what the schema gives', () => {
    const { config, errors } = checkDraft(defaultDraft)
    expect(errors).toEqual({})
    // But for what the page has otherwise than the command line.
    expect(parseTrainConfig(config)).toEqual(parseTrainConfig({ saves: 'auto' }))
  })

  it('gives numbers, switches and texts', () => {
    const draft = { ...defaultDraft, epochs: ' 2 ', lr: '1e-2', tune: 'true', steps: '' }
    expect(checkDraft(draft).config).toMatchObject({
      epochs: 2,
      lr: 0.01,
      tune: true,
    })
  })

  it.each([
    ['epochs', '0', 'Enter 1 or more, not 0'],
    ['epochs', '1.5', 'Enter a whole number, not 1.5'],
    ['lr', '-1', 'Enter 0 or more, not -1'],
    ['lr', 'fast', 'Enter a number, not "fast"'],
    ['bucketCapMb', '0', 'Enter more than 0, not 0'],
    ['model', 'gpt', 'Choose mlp, cnn, or cnn-bn, not "gpt"'],
    ['data', '', 'Enter an address'],
    ['tune', 'maybe', 'Choose true or false, not "maybe"'],
    ['parallel', 'tp=2', 'Choose dp, fsdp, pp=N or pp=N,dp=M, not "tp=2"'],
  ] as const)('%s %s', (key, value, text) => {
    const { config, errors } = checkDraft({ ...defaultDraft, [key]: value })
    expect(config).toBeNull()
    expect(errors).toEqual({ [key]: text })
  })

  it('a demo brings its own defaults and choices', () => {
    const draft = withSetting({ ...defaultDraft, seed: '7', epochs: '9' }, 'demo', 'playground')
    expect(draft).toMatchObject({ model: 'tanh', data: 'spiral', batchSize: '96', seed: '7' })
    expect(queryOf(draft)).toBe('?demo=playground&seed=7')
    expect(draftFromQuery(queryOf(draft))).toEqual(draft)
    expect(checkDraft({ ...draft, data: 'given' }).errors).toEqual({})
    expect(checkDraft({ ...draft, data: '/data/' }).errors.data).toContain('Choose spiral, circles')
    expect(checkDraft({ ...draft, model: 'cnn' }).errors.model).toMatch(
      /^Choose tanh, .+, not "cnn"$/,
    )
    expect(checkDraft({ ...draft, demo: 'chess' }).errors.demo).toContain('not "chess"')
    expect(parseTrainConfig(checkDraft(draft).config)).toMatchObject({
      demo: 'playground',
      seed: 7,
    })
  })

  it('without an exchange nothing is saved', () => {
    const draft = { ...defaultDraft, strategy: 'alone', checkpointEvery: '5' }
    expect(checkDraft(draft).errors).toEqual({
      checkpointEvery: 'Not available while the exchange is off',
    })
    expect(Object.keys(checkDraft({ ...draft, parallel: 'fsdp' }).errors).sort()).toEqual([
      'checkpointEvery',
      'parallel',
    ])
  })

  it.each([
    ['strategy', 'alone'],
    ['parallel', 'fsdp'],
    ['partition', 'own-slice'],
    ['tune', 'true'],
  ] as const)('with the same bits on any tabs, %s=%s is not available', (key, value) => {
    const draft = { ...defaultDraft, exact: 'true', [key]: value }
    expect(checkDraft(draft)).toMatchObject({
      config: null,
      errors: { [key]: 'Not available with the same bits on any tabs' },
    })
    // What is empty has its default.
    expect(checkDraft({ ...draft, [key]: '' }).errors).toEqual({})
  })

  it('pipelines clip no gradients', () => {
    const draft = { ...defaultDraft, parallel: 'pp=2', clipNorm: '1' }
    expect(checkDraft(draft).errors).toEqual({ clipNorm: 'Not available with pipelines' })
    expect(checkDraft({ ...draft, parallel: 'dp' }).errors).toEqual({})
  })

  it('a batch is no larger than the data, where that is known', () => {
    const playground = { ...defaultDraftOf('playground'), batchSize: '481' }
    expect(checkDraft(playground).errors.batchSize).toBe(
      'Enter at most 480, the number of training samples, not 481',
    )
    expect(checkDraft({ ...playground, batchSize: '480' }).errors).toEqual({})
    const drawn = { ...playground, data: 'given' }
    expect(checkDraft(drawn).errors).toEqual({})
    expect(checkDraft(drawn, 1, { isThere: true, samples: 40 }).errors.batchSize).toContain('40')
    expect(fittingBatch(playground)).toBe('480')
    expect(fittingBatch(drawn, 3, { isThere: true, samples: 40 })).toBe('40')
    expect(fittingBatch(drawn, 3)).toBeNull()
    // More ranks than samples: no number would do.
    expect(fittingBatch(drawn, 50, { isThere: true, samples: 40 })).toBeNull()
  })

  it('data in a link that cannot be read is reported as damaged, until other data is there', () => {
    const set = (key: 'demo' | 'data', value: string) => ({ type: 'setting', key, value }) as const
    const asked = play(inside(1), set('demo', 'playground'), set('data', 'given'))
    expect(checkedDraft(asked).errors.data).toMatch(/^No data yet: draw/)
    const damaged = play(asked, { type: 'damagedInLink', demo: 'playground' })
    expect(checkedDraft(damaged).errors.data).toMatch(
      /^The data in this link is damaged: copy the whole link again, or draw at least 10 points$/,
    )
    const drawn = play(damaged, { type: 'given', demo: 'playground', text: null, samples: 99 })
    expect(checkedDraft(drawn).errors).toEqual({})
    const less = play(drawn, { type: 'given', demo: 'playground', text: null, samples: 40 })
    // Nobody chose the 96 of the demo: a step takes all 40.
    expect(checkedDraft(less).errors).toEqual({})
    const chosen = play(less, { type: 'setting', key: 'batchSize', value: '41' })
    expect(checkedDraft(chosen).errors.batchSize).toContain('Enter at most 40')
    const back = play(drawn, { type: 'givenBack', demo: 'playground' })
    expect(checkedDraft(back).errors.data).toContain('No data yet')
  })

  it('no batch is larger than any data that a page trains on', () => {
    const served = { ...defaultDraft, data: '/data/', batchSize: '1000000000' }
    expect(checkDraft(served).errors.batchSize).toBe('Enter at most 65536, not 1000000000')
    expect(fittingBatch(served)).toBe('65536')
    expect(checkDraft({ ...served, batchSize: '65536' }).errors).toEqual({})
    expect(() => parseTrainConfig({ batchSize: 65_537 })).toThrow('batchSize')
  })

  it.each([
    ['pp=2', 1, 'a multiple of 2 ranks, not 1'],
    ['pp=3', 4, 'a multiple of 3 ranks, not 4'],
    ['pp=2,dp=2', 2, '4 ranks, not 2'],
  ])('%s of %i ranks is an error', (parallel, ranks, text) => {
    const draft = { ...defaultDraft, parallel }
    expect(checkDraft(draft, ranks).errors).toEqual({
      parallel: `Open or close tabs, or choose another: ${parallel} needs ${text}`,
    })
    // Before the room is known there is nothing to say.
    expect(checkDraft(draft).errors).toEqual({})
  })

  it.each([
    ['pp=2', 4],
    ['pp=3', 3],
    ['pp=2,dp=3', 6],
  ])('%s of %i ranks is no error', (parallel, ranks) => {
    expect(checkDraft({ ...defaultDraft, parallel }, ranks).errors).toEqual({})
  })

  it('every rank needs a sample', () => {
    const draft = { ...defaultDraft, batchSize: '2' }
    expect(checkDraft(draft, 2).config).not.toBeNull()
    expect(checkDraft(draft, 3).errors.batchSize).toContain('one sample for each rank')
  })
})
