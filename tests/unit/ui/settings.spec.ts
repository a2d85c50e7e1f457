import { describe, expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiment.ts'
import { trainConfigSchema } from '../../../src/train/config.ts'
import { experimentLink, inviteLink } from '../../../src/ui/experiment-link.ts'
import {
  checkDraft,
  defaultDraft,
  describeSetting,
  draftFromQuery,
  isOfTab,
  mostRanks,
  queryOf,
  ranksOf,
  settings,
  withSetting,
} from '../../../src/ui/settings.ts'
import { inside, makeSnapshot, play, training } from '../../support/page-states.ts'

describe('ranks in one tab', () => {
  it('are a setting of the tab: in its address, not in the run', () => {
    const draft = draftFromQuery('?ranks=3')
    expect(ranksOf(draft)).toBe(3)
    expect(queryOf(draft)).toBe('?ranks=3')
    const { config, errors } = checkDraft(draft, 3)
    expect(errors).toEqual({})
    expect(config).not.toHaveProperty('ranks')
  })

  it.each(['0', '9', '-1', '2.5', 'many', '', '1e0'])(
    '%j is an error, and counts as one',
    (ranks) => {
      const draft = { ...defaultDraft, ranks }
      expect(ranksOf(draft)).toBe(1)
      expect(checkDraft(draft).errors.ranks).toContain(`expected 1 to ${mostRanks}, got`)
    },
  )
})

describe('links', () => {
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

  it("a guest's has the demo of the run, whatever the guest's own address says", () => {
    const guest = training(3, 5, 1, { config: { demo: 'playground' } })
    expect(searchOf(inviteLink(guest))).toBe('?demo=playground')
    expect(searchOf(experimentLink(guest))).toBe('?demo=playground&epochs=3')
  })
})

describe('the list of settings', () => {
  it('names every setting of the schema once', () => {
    const keys = settings.map(({ key }) => key)
    expect(new Set(keys).size).toBe(keys.length)
    expect(keys.filter((key) => !isOfTab(key)).sort()).toEqual(
      Object.keys(trainConfigSchema.entries).sort(),
    )
  })

  it("offers the schema's choices and no others", () => {
    for (const { key, choices } of settings) {
      if (!choices || key === 'transport') continue
      for (const [value] of choices) expect(() => parseTrainConfig({ [key]: value })).not.toThrow()
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
    expect(checkDraft(draft).errors.epochs).toBe('expected a number, got none')
  })
})

describe('checking', () => {
  it('the defaults are what the schema gives', () => {
    const { config, errors } = checkDraft(defaultDraft)
    expect(errors).toEqual({})
    expect(parseTrainConfig(config)).toEqual(parseTrainConfig({}))
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
    ['epochs', '0', 'expected 1 or more, got 0'],
    ['epochs', '1.5', 'expected a whole number, got 1.5'],
    ['lr', '-1', 'expected 0 or more, got -1'],
    ['lr', 'fast', 'expected a number, got fast'],
    ['bucketCapMb', '0', 'expected more than 0, got 0'],
    ['model', 'gpt', 'expected mlp or cnn, got gpt'],
    ['data', '', 'expected an address, got nothing'],
    ['tune', 'maybe', 'expected true or false, got maybe'],
  ] as const)('%s %s', (key, value, text) => {
    const { config, errors } = checkDraft({ ...defaultDraft, [key]: value })
    expect(config).toBeNull()
    expect(errors).toEqual({ [key]: text })
  })

  it('a demo brings its own', () => {
    const draft = withSetting({ ...defaultDraft, seed: '7', epochs: '9' }, 'demo', 'playground')
    expect(draft).toMatchObject({ model: 'tanh', data: 'spiral', batchSize: '96', seed: '7' })
    expect(queryOf(draft)).toBe('?demo=playground&seed=7')
    expect(draftFromQuery(queryOf(draft))).toEqual(draft)
    expect(checkDraft({ ...draft, data: 'given' }).errors).toEqual({})
    expect(checkDraft({ ...draft, data: '/data/' }).errors.data).toContain('expected spiral or')
    expect(checkDraft({ ...draft, model: 'cnn' }).errors.model).toBe('expected tanh, got cnn')
    expect(checkDraft({ ...draft, demo: 'chess' }).errors.demo).toContain('got chess')
    expect(parseTrainConfig(checkDraft(draft).config)).toMatchObject({
      demo: 'playground',
      seed: 7,
    })
  })

  it('without an exchange nothing is saved', () => {
    const draft = { ...defaultDraft, strategy: 'alone', checkpointEvery: '5' }
    expect(checkDraft(draft).errors).toEqual({
      checkpointEvery: 'expected none while the exchange is switched off',
    })
  })

  it('every rank needs a sample', () => {
    const draft = { ...defaultDraft, batchSize: '2' }
    expect(checkDraft(draft, 2).config).not.toBeNull()
    expect(checkDraft(draft, 3).errors.batchSize).toContain('one sample for each rank')
  })
})
