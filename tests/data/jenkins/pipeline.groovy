// Executes a declarative pipeline of Jenkins on this machine: `groovy pipeline.groovy JENKINSFILE WORKSPACES PROGRAM`.
//
// It knows what the Jenkinsfile of the documents uses. A step that it does not know is a MissingMethodException, so nothing is left out in silence.
// Each cell of the matrix and each stage has a workspace of its own, as on different agents; a file is stashed and unstashed by a copy.

import groovy.io.FileType
import java.nio.file.FileSystems

class Pipeline {
    File home
    String project, program
    File workspace
    Binding binding = new Binding(none: 'none')
    Map<String, String> variables = [:]
    String result = 'SUCCESS'

    static final List<String> ORDER = ['SUCCESS', 'UNSTABLE', 'FAILURE']
    static class ShellFailed extends RuntimeException { ShellFailed(String text) { super(text) } }

    boolean ended = false

    void carryOut(Closure body) { into(new Top(), body) }
    void worse(String other) { if (ORDER.indexOf(other) > ORDER.indexOf(result)) result = other }
    void into(Object owner, Closure body) { def own = body.clone(); own.delegate = owner; own.resolveStrategy = Closure.DELEGATE_FIRST; own() }
    void on(String name) {
        workspace = new File(home, name)
        ['cp', '-r', project, workspace.path].execute().waitFor()
    }

    int shell(String line) {
        if (line.contains('-m venv')) line = 'mkdir -p .venv/bin'
        if (line.contains('bin/pip')) line = "install -m 755 '$program' .venv/bin/torch-conformance"
        println "[${workspace.name}] + $line"
        def builder = new ProcessBuilder('sh', '-xe', '-c', line).directory(workspace).inheritIO()
        builder.environment().putAll(variables)
        return builder.start().waitFor()
    }

    void copy(String pattern, File source, File target) {
        pattern.split(', *').each { one ->
            def matcher = FileSystems.default.getPathMatcher("glob:$one")
            def found = [:]
            source.eachFileRecurse(FileType.FILES) { file ->
                def relative = source.toPath().relativize(file.toPath())
                if (matcher.matches(relative)) found[relative.toString()] = file
            }
            if (!found) throw new IllegalStateException("no file matches $one in $source")
            found.each { name, file ->
                def to = new File(target, name)
                to.parentFile.mkdirs()
                to.bytes = file.bytes
            }
        }
    }

    class Top {
        void agent(Object none) { }
        void stages(Closure body) { into(new Stages(), body) }
    }

    class Stages { void stage(String name, Closure body) {
        def stage = new Stage(name: name)
        into(stage, body)
        stage.carryOut()
    } }

    class Stage {
        String name
        Closure steps, post
        Closure cells
        void agent(Object none) { }
        void agent(Closure label) { if (!cells) on(name) }
        void steps(Closure body) { steps = body }
        void post(Closure body) { post = body }
        void matrix(Closure body) { cells = body }
        void carryOut() {
            if (cells) { into(new Matrix(), cells); return }
            if (ended) { println "Stage \"$name\" skipped due to earlier failure(s)"; return }
            try { into(new Steps(), steps) } catch (ShellFailed failed) {
                println failed.message
                worse('FAILURE')
                ended = true  // catchError does not: after it the next stage runs
            }
            if (post) into(new Post(), post)
        }
    }

    class Matrix {
        String key
        List<String> points
        void agent(Closure label) { }
        void axes(Closure body) { into(this, body) }
        void axis(Closure body) { into(this, body) }
        void name(String word) { key = word }
        void values(String... words) { points = words }
        void stages(Closure body) {
            points.each { value ->
                variables[key] = value
                binding.setVariable(key, value)
                on("cell-$value")
                into(new Stages(), body)
            }
            variables.remove(key)
        }
    }

    class Post { void always(Closure body) { into(new Steps(), body) } }

    class Steps {
        void sh(String line) { if (shell(line)) throw new ShellFailed("script returned exit code 1: $line") }
        void catchError(Map options, Closure body) {
            try { into(this, body) } catch (ShellFailed failed) { println failed.message; worse(options.buildResult ?: 'FAILURE') }
        }
        void stash(Map options) { copy(options.includes, workspace, new File(home, "stash/${options.name}")) }
        void unstash(String name) { copy('**', new File(home, "stash/$name"), workspace) }
        void junit(String file) {
            copy(file, workspace, new File(home, 'published'))
            if (new File(workspace, file).text =~ /<(failure|error)\b/) worse('UNSTABLE')
        }
        void archiveArtifacts(Map options) { copy(options.artifacts, workspace, new File(home, 'published')) }
    }
}

def (file, home, program) = args as List
def run = new Pipeline(home: new File(home), project: new File(file).absoluteFile.parent, program: program)
run.home.mkdirs()
run.binding.setVariable('pipeline') { Closure body -> run.carryOut(body) }
new GroovyShell(run.binding).evaluate(new File(file))
println "Finished: ${run.result}"
System.exit(run.result == 'SUCCESS' ? 0 : 1)
