package kip33.oracle.lines;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Answers one JSON line on standard output for every JSON line on standard input.
 *
 * <p>A request names its verb in the field {@code do}. A verb that throws is a fault of the oracle,
 * answered as {@code {"fault": ...}}; what Kafka throws is an outcome, and the verb's own business.
 */
public final class LineServer {
    /** One verb: a request in, an answer (anything Jackson writes) out. */
    public interface Verb {
        Object answer(JsonNode request) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Verb> verbs;

    public LineServer(Map<String, Verb> verbs) {
        this.verbs = verbs;
    }

    public void serve() throws IOException {
        // Kept before anything redirects System.out, which DumpLogSegments prints to.
        PrintStream answers = new PrintStream(
            new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.print(JSON.writeValueAsString(answer(line)));
            answers.print('\n');
            answers.flush();
        }
    }

    private Object answer(String line) {
        try {
            JsonNode request = JSON.readTree(line);
            Verb verb = verbs.get(request.path("do").asText());
            if (verb == null)
                throw new IllegalArgumentException("no such verb, only " + verbs.keySet());
            return verb.answer(request);
        } catch (Exception fault) {
            return Map.of("fault", fault.toString());
        }
    }
}
